"""What is measured, once for every actor library; `danaus_side.py` and `monarch_side.py` bring the names.

Calls are awaited without a timeout, which costs the peer a twentieth; a run that hangs is ended from outside.
"""

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP_TIMEOUT_S = 120.0
IN_FLIGHT = 1000

Figures = dict[str, tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Library:
    actor: type
    endpoint: Callable[..., Any]
    this_host: Callable[[], Any]
    this_proc: Callable[[], Any]
    stop: Callable[[Any], None]  # returns when the procs of a mesh are gone
    growth_calls: int
    growth_warmup: int


def echo_class(actor: Any, endpoint: Callable[..., Any]) -> Any:
    """The actor under test. It travels by value, so that its procs need no path to this file."""

    class Echo(actor):
        @endpoint
        def echo(self, value: int) -> int:
            return value

        @endpoint
        def call_other(self, other: Any, warmup: int, count: int) -> float:
            took = []
            for i in range(warmup + count):
                start = time.perf_counter_ns()
                other.echo.call_one(i).get()
                took.append(time.perf_counter_ns() - start)
            return statistics.median(took[warmup:]) / 1000

        @endpoint
        def collect_garbage(self) -> int:
            gc.collect()
            return os.getpid()

    return Echo


def median_us(call: Callable[[int], object], *, warmup: int, count: int) -> tuple[float, int]:
    """The median time of one call, and how many were timed."""
    took = []
    for i in range(warmup + count):
        start = time.perf_counter_ns()
        call(i)
        took.append(time.perf_counter_ns() - start)
    return statistics.median(took[warmup:]) / 1000, count


# ----------------------------------------------------------------------------------------------------------- calls


def calls(library: Library, *, quick: bool) -> Figures:
    echo = echo_class(library.actor, library.endpoint)
    warmup, count, mesh_count = (50, 200, 30) if quick else (500, 2000, 300)
    figures: Figures = {}

    procs = library.this_host().spawn_procs(per_host={"gpus": 2})
    actors = procs.spawn("echo", echo)
    first, second = actors.slice(gpus=0), actors.slice(gpus=1)
    figures["calls.round_trip"] = median_us(lambda i: first.echo.call_one(i).get(), warmup=warmup, count=count)
    pipelined(first, 1000)
    figures["calls.pipelined"] = pipelined(first, 2000 if quick else 10_000)
    figures["calls.actor_to_actor"] = (first.call_other.call_one(second, warmup, count).get(), count)
    library.stop(procs)

    local = library.this_proc().spawn("local", echo)
    figures["calls.in_process"] = median_us(lambda i: local.echo.call_one(i).get(), warmup=warmup, count=count)

    for size in (1, 4) if quick else (1, 4, 16, 32):
        procs = library.this_host().spawn_procs(per_host={"gpus": size})
        mesh = procs.spawn("echo", echo)
        figures[f"calls.mesh_{size}"] = median_us(_caller(mesh), warmup=mesh_count // 3, count=mesh_count)
        library.stop(procs)
    return figures


def _caller(mesh: Any) -> Callable[[int], object]:
    return lambda i: mesh.echo.call(i).get()


def pipelined(mesh: Any, count: int) -> tuple[float, int]:
    """Calls per second in bursts: 1,000 sent, then all awaited; it suits the peer better than a window."""
    start = time.perf_counter()
    in_bursts(lambda: mesh, count, IN_FLIGHT)
    return count / (time.perf_counter() - start), count


def in_bursts(target: Callable[[], Any], count: int, burst: int) -> None:
    """`count` calls, `burst` in flight at most; `target` makes what each of them is called on."""
    for _ in range(count // burst):
        futures = [target().echo.call_one(i) for i in range(burst)]
        for future in futures:
            future.get()


# ---------------------------------------------------------------------------------------------------------- growth


def growth_fixed(library: Library, *, quick: bool) -> Figures:
    return growth(library, "growth_fixed", lambda mesh: mesh, quick=quick)


def growth_slices(library: Library, *, quick: bool) -> Figures:
    return growth(library, "growth_slices", lambda mesh: mesh.slice(gpus=0), quick=quick)


def growth(library: Library, name: str, target: Callable[[Any], Any], *, quick: bool) -> Figures:
    """Private bytes won per call in the second half of the calls, in the client and in the proc called."""
    warmup, half = (1000, 2000) if quick else (library.growth_warmup, library.growth_calls // 2)
    procs = library.this_host().spawn_procs(per_host={"gpus": 1 if name == "growth_fixed" else 2})
    mesh = procs.spawn("echo", echo_class(library.actor, library.endpoint))
    called = mesh.slice(gpus=0)

    def memory_after(calls_first: int) -> tuple[int, int]:
        in_bursts(lambda: target(mesh), calls_first, 100)
        pid = called.collect_garbage.call_one().get()
        gc.collect()
        return private_bytes(os.getpid()), private_bytes(pid)

    memory_after(warmup)
    middle = memory_after(half)
    end = memory_after(half)
    library.stop(procs)
    return {
        f"{name}.client": ((end[0] - middle[0]) / half, 2 * half),
        f"{name}.proc": ((end[1] - middle[1]) / half, 2 * half),
    }


def private_bytes(pid: int) -> int:
    """Memory that this process alone pays for, swapped out or not."""
    fields = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()[1:])
    kilobytes = {name: int(value) for name, value, *_ in fields}
    return 1024 * (kilobytes["Private_Clean:"] + kilobytes["Private_Dirty:"] + kilobytes["Swap:"])


# ---------------------------------------------------------------------------------------------------- command line


def options(*names: str) -> tuple[str, bool]:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=names)
    parser.add_argument("--quick", action="store_true")
    parsed = parser.parse_args()
    return parsed.workload, parsed.quick


def print_figures(figures: Figures) -> None:
    print(json.dumps({"figures": figures}), flush=True)


def main(library: Library) -> None:
    workloads = {"calls": calls, "growth_fixed": growth_fixed, "growth_slices": growth_slices}
    name, quick = options(*workloads)
    print_figures(workloads[name](library, quick=quick))
