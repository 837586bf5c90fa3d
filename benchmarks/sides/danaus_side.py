"""The product's names for `workloads.py`."""

import workloads

from danaus import Actor, ProcMesh, endpoint, shutdown, this_host, this_proc


def stop(procs: ProcMesh) -> None:
    procs.stop().get(workloads.STOP_TIMEOUT_S)


if __name__ == "__main__":
    workloads.main(
        workloads.Library(
            actor=Actor,
            endpoint=endpoint,
            this_host=this_host,
            this_proc=this_proc,
            stop=stop,
            growth_calls=300_000,
            growth_warmup=20_000,
        )
    )
    shutdown()
