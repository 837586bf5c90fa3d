"""How every figure is made: sides run by turns in fresh processes; medians, spreads, bars; one JSON line each.

What is measured lives in `sides/`; which figures a question asks for, and their bars, in `<question>.py`.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent
SIDES = ROOT / "benchmarks" / "sides"
PEER_PYTHON = ROOT / ".venv-peer" / "bin" / "python"
ALTERNATIONS = 5
RUN_MARK = "BENCHMARK_RUN"  # in the environment of everything one run starts, so that what it leaves can be found


@dataclass(frozen=True, slots=True)
class Side:
    """One program that measures: the product, the peer, or a bare program that shows the limit."""

    name: str
    python: Path
    script: Path
    timeout_s: float = 600.0
    attempts: int = 1


OURS = Side("ours", Path(sys.executable), SIDES / "danaus_side.py")
PEER = Side("peer", PEER_PYTHON, SIDES / "monarch_side.py", attempts=3)  # it hangs now and then
LIMIT = Side("limit", Path(sys.executable), SIDES / "bare_side.py")


class Bar(Protocol):
    """What a figure has to reach. `met` is None where there is nothing to judge by."""

    def __str__(self) -> str: ...
    def met(self, ours: float | None, peer: float | None) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class AtMostOfPeer:
    share: float

    def __str__(self) -> str:
        return f"ours <= {self.share:.2f} x peer"

    def met(self, ours: float | None, peer: float | None) -> bool | None:
        return None if ours is None or peer is None else ours <= self.share * peer


@dataclass(frozen=True, slots=True)
class AtMost:
    value: float
    why: str

    def __str__(self) -> str:
        return f"ours <= {self.value:.3g} ({self.why})"

    def met(self, ours: float | None, peer: float | None) -> bool | None:
        return None if ours is None else ours <= self.value


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    unit: str
    bar: Bar | None = None
    limit: float | None = None  # where the limit needs no program


@dataclass(slots=True)
class Runs:
    """The values of every alternation, by side and figure; `samples` says how many went into each value."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    samples: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, side: str, result: Mapping[str, tuple[float, int]]) -> None:
        for name, (value, samples) in result.items():
            self.values.setdefault(side, {}).setdefault(name, []).append(value)
            self.samples.setdefault(side, {})[name] = samples

    def of(self, side: str, name: str) -> list[float]:
        return self.values.get(side, {}).get(name, [])


class SideFailed(Exception):
    """A side ended badly, timed out, or printed no result."""


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------ running one side


def run_side(side: Side, workload: str, *, quick: bool) -> dict[str, tuple[float, int]]:
    """The figures of one run in a fresh process; nothing that it started is alive afterwards."""
    command = [str(side.python), str(side.script), workload, *(["--quick"] if quick else [])]
    mark = uuid.uuid4().hex
    environ = os.environ | {RUN_MARK: mark}
    if side is PEER:
        environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:  # a pipe would wait for orphans
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environ, cwd=ROOT, start_new_session=True)
        try:
            rc: int | None = process.wait(side.timeout_s)
        except subprocess.TimeoutExpired:
            rc = None
        finally:
            grace_s = 5.0 if process.poll() is not None else 0.0
            end_all(process, mark, grace_s=grace_s, side=side.name)
        texts = [_whole(out), _whole(err)]
    if rc != 0:
        how = f"did not end within {side.timeout_s:g} s" if rc is None else f"ended with code {rc}"
        raise SideFailed(f"{side.name}: {' '.join(command)} {how}\n" + "\n".join(texts)[-4000:])
    results = [line for line in texts[0].splitlines() if line.startswith('{"figures"')]
    if len(results) != 1:
        raise SideFailed(f"{side.name}: {' '.join(command)} printed {len(results)} results\n" + texts[0][-4000:])
    return {name: (value, samples) for name, (value, samples) in json.loads(results[0])["figures"].items()}


def _whole(file: "tempfile._TemporaryFileWrapper[str]") -> str:
    file.seek(0)
    return file.read()


def end_all(process: "subprocess.Popen[bytes]", mark: str, *, grace_s: float, side: str) -> None:
    """Kill the run's process group and every process, of any group, that carries the run's mark."""
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(marked(mark)):
        time.sleep(0.05)
    left = list(marked(mark))
    if left and grace_s:
        note(f"  {side} left {len(left)} processes behind; killed")
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    while left:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
        left = list(marked(mark))


def marked(mark: str) -> Iterator[int]:
    wanted = f"{RUN_MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
        except OSError:
            continue  # it ended meanwhile, or belongs to another user


def alternate(sides: Sequence[Side], workload: str, *, times: int, quick: bool) -> Runs:
    """Run the sides by turns, `times` rounds, so that a change of the machine's mood hits all of them."""
    runs = Runs()
    for i in range(times):
        for side in sides:
            start = time.monotonic()
            runs.add(side.name, _run_stubbornly(side, workload, quick=quick))
            note(f"  round {i + 1}/{times}: {side.name:5} {workload} took {time.monotonic() - start:.1f} s")
    return runs


def _run_stubbornly(side: Side, workload: str, *, quick: bool) -> dict[str, tuple[float, int]]:
    for attempt in range(1, side.attempts + 1):
        try:
            return run_side(side, workload, quick=quick)
        except SideFailed as e:
            if attempt == side.attempts:
                raise
            note(f"  attempt {attempt} failed, next one: {e}")
    raise AssertionError("attempts is at least 1")


# ------------------------------------------------------------------------------------------------------- reporting


def line(figure: Figure, runs: Runs, *, times: int, judge: bool) -> dict[str, object]:
    """The JSON line of one figure; `value` is ours, and all of them are medians over the alternations."""
    values = {side: runs.of(side, figure.name) for side in ("ours", "peer", "limit")}
    medians = {side: round(statistics.median(v), 3) if v else None for side, v in values.items()}
    ours, peer, limit = medians["ours"], medians["peer"], medians["limit"]
    limit = figure.limit if limit is None else limit
    bar = figure.bar
    judged = {} if bar is None else {"bar": str(bar), "met": bar.met(ours, peer) if judge else None}
    return {
        "name": figure.name,
        "value": ours,
        "unit": figure.unit,
        "n": times,
        "samples": {side: s[figure.name] for side, s in runs.samples.items() if figure.name in s},
        "spread": {side: [round(min(v), 3), round(max(v), 3)] for side, v in values.items() if v},
        "ours": ours,
        "peer": peer,
        "limit": limit,
        "ratio": round(ours / peer, 3) if ours is not None and peer else None,
        "ratio_to_limit": round(ours / limit, 2) if ours is not None and limit else None,
        **judged,
    }


def table(lines: Sequence[Mapping[str, object]]) -> str:
    head = ("figure", "unit", "ours", "peer", "limit", "ratio", "bar", "met")
    rows = [head]
    for entry in lines:
        cells = [entry["name"], *(entry.get(key) for key in head[1:])]
        rows.append(tuple("-" if c is None else f"{c:g}" if isinstance(c, float) else str(c) for c in cells))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def machine() -> str:
    cpu = next((x.split(":")[1].strip() for x in _lines("/proc/cpuinfo") if x.startswith("model name")), "unknown CPU")
    memory_kb = next(int(x.split()[1]) for x in _lines("/proc/meminfo") if x.startswith("MemTotal"))
    return (
        f"{os.cpu_count()} x {cpu}, {memory_kb / 2**20:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def commit() -> str:
    """The commit measured, with `-dirty` when `src` or `benchmarks` differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return (head or "uncommitted") + ("-dirty" if _git("status", "--porcelain", "--", "src", "benchmarks") else "")


def _git(*args: str) -> str:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


# ---------------------------------------------------------------------------------------------------- command line


def answer(question: str, figures: Sequence[Figure], sides: Sequence[Side], workloads: Sequence[str]) -> int:
    """Measure, print a JSON line per figure and a table on stderr.

    Returns:
        0: all bars met, or none could be judged; 1: a bar was missed; 2: a side failed.
    """
    options = _options(question)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the running side is ended too
    chosen = [s for s in sides if not options.sides or s.name in options.sides]
    if PEER in chosen and not PEER_PYTHON.exists():
        note(f"{PEER_PYTHON} is missing: the peer is left out and its bars are not judged; `make peer` builds it")
        chosen.remove(PEER)
    times = 1 if options.quick else options.alternations
    judge = times >= ALTERNATIONS
    if not judge:
        note(f"{times} alternation(s): figures to look at, no bar is judged below {ALTERNATIONS}")
    where = {"machine": machine(), "commit": commit()}
    note(f"{question}: {where['machine']}, commit {where['commit']}, load {os.getloadavg()[0]:.2f}")
    lines: list[dict[str, object]] = []
    for workload in workloads:
        try:
            runs = alternate(chosen, workload, times=times, quick=options.quick)
        except SideFailed as e:
            note(str(e))
            return 2
        for figure in figures:
            if not any(figure.name in by_name for by_name in runs.values.values()):
                continue  # of another workload, or left out of a quick run
            lines.append(line(figure, runs, times=times, judge=judge) | where)
            print(json.dumps(lines[-1]), flush=True)
    note(table(lines))
    unmeasured = sorted({f.name for f in figures} - {str(entry["name"]) for entry in lines})
    if unmeasured and not options.quick:
        note(f"no side measured {', '.join(unmeasured)}")
        return 2
    return 1 if any(entry.get("met") is False for entry in lines) else 0


def _options(question: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"benchmarks/{question}.py")
    parser.add_argument("--quick", action="store_true", help="one short alternation, to see that it works")
    parser.add_argument("--alternations", type=int, default=ALTERNATIONS, help=f"rounds (default {ALTERNATIONS})")
    parser.add_argument("--sides", nargs="+", choices=["ours", "peer", "limit"], help="only these (default all)")
    return parser.parse_args()
