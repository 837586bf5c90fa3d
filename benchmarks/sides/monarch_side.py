"""The peer's names for `workloads.py`; runs in the interpreter that `make peer` sets up."""

import workloads
from monarch.actor import Actor, ProcMesh, endpoint, shutdown_context, this_host, this_proc


def stop(procs: ProcMesh) -> None:
    procs.stop("measured").get(workloads.STOP_TIMEOUT_S)


if __name__ == "__main__":
    workloads.main(
        workloads.Library(
            actor=Actor,
            endpoint=endpoint,
            this_host=this_host,
            this_proc=this_proc,
            stop=stop,
            growth_calls=20_000,  # it grows steadily, as longer runs showed: more calls say no more
            growth_warmup=2_000,
        )
    )
    shutdown_context().get(workloads.STOP_TIMEOUT_S)
