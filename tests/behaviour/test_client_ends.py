"""Semantics 22: however the client ends, nothing of it is left 5 s later."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

PREAMBLE = """
    import ctypes, multiprocessing, os, signal, subprocess, sys, threading, time
    from danaus import Actor, endpoint, this_host

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background

    def sleep_for_ever(*signals):
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(60)

    class Worker(Actor):
        @endpoint
        def pid(self):
            return os.getpid()
        @endpoint
        def start_children(self):
            code = "import time; time.sleep(60)"
            self.plain = subprocess.Popen([sys.executable, "-c", code])
            deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
            self.deaf = subprocess.Popen([sys.executable, "-c", deaf])
            self.forked = multiprocessing.get_context("fork").Process(target=sleep_for_ever, args=(signal.SIGTERM,))
            self.forked.start()
            self.setsid = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        @endpoint
        def hang(self):
            signal_mask = ctypes.CDLL(None).pause
            while True:
                signal_mask()
        @endpoint
        def burn(self):
            while True:
                pass
        @endpoint
        async def wait(self):
            import asyncio
            await asyncio.get_running_loop().create_future()

    def tell(text):
        print(text, flush=True)

    tell("started")
"""

WORK = {
    "idle": """
        worker = this_host().spawn_procs({"gpus": 2}).spawn("worker", Worker)
        worker.pid.call().get(30)
        tell("ready")
    """,
    "children": """
        worker = this_host().spawn_procs({"gpus": 2}).spawn("worker", Worker)
        worker.start_children.call().get(30)
        tell("ready")
    """,
    "in a call": """
        worker = this_host().spawn_procs({"gpus": 3}).spawn("worker", Worker)
        worker.pid.call().get(30)
        calls = [worker.slice(gpus=0).hang.call_one(), worker.slice(gpus=1).burn.call_one()]
        waiting = worker.slice(gpus=2).wait.call_one()
        tell("ready")
    """,
    "starting": """
        worker = this_host().spawn_procs({"gpus": 3}).spawn("worker", Worker)
        tell("ready")
    """,
}

SLEEP = "while True: time.sleep(0.05)"
"""Not in one go: a signal that comes just before a long sleep is heard by Python only after it."""

ENDS = {
    "return": "",
    "exception": "raise ValueError('of the script')",
    "sys.exit": "sys.exit(7)",
    "os._exit": "os._exit(8)",
    "SIGINT": SLEEP,
    "SIGTERM": SLEEP,
    "SIGKILL": SLEEP,
    "SIGHUP": SLEEP,
}

CODES = {"return": 0, "exception": 1, "sys.exit": 7, "os._exit": 8}


@dataclass
class Script:
    """A client in a process of its own, whose descendants all carry a mark in their environment."""

    process: "subprocess.Popen[str]"
    mark: str
    directory: Path

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        for found in self.process.stdout:
            if found.strip() == line:
                return
        raise AssertionError(f"it ended without {line!r}")

    def processes(self) -> list[psutil.Process]:
        """All living processes of it, the client included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("CLIENT_MARK") == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def agents(self) -> list[psutil.Process]:
        """The guard and the agent below it."""
        return [process for process in self.processes() if any("agent_main" in part for part in process.cmdline())]

    def others_left_after(self, seconds: float) -> list[psutil.Process]:
        """The processes that are there beside the client so long from now."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            if [process.pid for process in left] == [self.process.pid]:
                break
            threading.Event().wait(0.02)
        return [process for process in left if process.pid != self.process.pid]

    def left_after(self, seconds: float) -> list[str]:
        """What is still there so long after the client ended."""
        deadline = time.monotonic() + seconds
        while True:
            left = [str(process) for process in self.processes()]
            left += [str(path) for path in self.directory.iterdir()]
            if not left or time.monotonic() > deadline:
                return left
            threading.Event().wait(0.02)


@pytest.fixture(params=["unix"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(tmp_path: Path, transport: str) -> Iterator[object]:
    """Starts a script; kills what is left of it in the end."""
    started: list[Script] = []
    shared_memory = set(os.listdir("/dev/shm"))

    def start_script(work: str, end: str) -> Script:
        path = tmp_path / "script.py"
        path.write_text("\n".join(textwrap.dedent(part) for part in (PREAMBLE, work, end)))
        mark = f"{os.getpid()}-{time.monotonic_ns()}"
        directory = tmp_path / "run"
        directory.mkdir()
        environ = {
            **os.environ,
            "CLIENT_MARK": mark,
            "DANAUS_TRANSPORT": transport,
            "TMPDIR": str(directory),
            "XDG_RUNTIME_DIR": str(directory),
        }
        process = subprocess.Popen(
            [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
        )
        script = Script(process, mark, directory)
        started.append(script)
        script.wait_for("started")
        return script

    yield start_script
    for script in started:
        for process in script.processes():
            process.kill()
        script.process.wait()
        assert script.process.stdout is not None
        script.process.stdout.close()
    deadline = time.monotonic() + 5  # strangers make segments as well, and remove them
    while new := set(os.listdir("/dev/shm")) - shared_memory:
        assert time.monotonic() < deadline, new
        threading.Event().wait(0.02)


def send(script: Script, end: str) -> None:
    if end.startswith("SIG"):
        script.process.send_signal(getattr(signal, end))


@pytest.mark.parametrize(
    ("transport", "end"),
    [*(("unix", end) for end in ENDS), ("tcp", "return"), ("tcp", "SIGTERM"), ("tcp", "SIGKILL")],
    indirect=["transport"],
)
def test_nothing_is_left_when_an_idle_client_ends(start: object, end: str) -> None:
    script = start(WORK["idle"], ENDS[end])  # type: ignore[operator]
    script.wait_for("ready")
    send(script, end)
    code = script.process.wait(20)
    assert script.left_after(5) == []
    if end in CODES:
        assert code == CODES[end]
    elif end != "SIGINT":
        assert code == -getattr(signal, end)


@pytest.mark.parametrize("work", ["children", "in a call", "starting"])
@pytest.mark.parametrize("end", ["return", "SIGINT", "SIGTERM", "SIGKILL"])
def test_nothing_is_left_whatever_the_procs_are_doing(start: object, work: str, end: str) -> None:
    script = start(WORK[work], ENDS[end])  # type: ignore[operator]
    script.wait_for("ready")
    send(script, end)
    script.process.wait(40)
    assert script.left_after(5) == []


@pytest.mark.parametrize("victim", ["agent", "guard"])
def test_nothing_is_left_when_the_agent_is_killed_and_the_client_ends(start: object, victim: str) -> None:
    script = start(WORK["children"], "sys.stdin.read(); time.sleep(60)")  # type: ignore[operator]
    script.wait_for("ready")
    guard, agent = sorted(script.agents(), key=lambda process: len(process.parents()))
    {"agent": agent, "guard": guard}[victim].kill()
    assert script.others_left_after(5) == []
    script.process.kill()


def test_a_call_ends_when_the_agent_is_killed(start: object) -> None:
    script = start(  # type: ignore[operator]
        WORK["in a call"],
        """
        for call in [waiting, *calls]:
            try:
                call.get(30)
            except Exception as error:
                tell(type(error).__name__)
        try:
            this_host().spawn_procs().spawn("late", Worker).pid.call_one().get(30)
        except Exception as error:
            tell(type(error).__name__)
        tell("done")
        """,
    )
    script.wait_for("ready")
    for process in script.agents():
        process.kill()
    script.wait_for("done")
    script.process.wait(20)
    assert script.left_after(5) == []
