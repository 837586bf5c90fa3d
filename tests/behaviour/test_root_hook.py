"""Semantics 20 and 24 at the root: what nobody received or handled is printed once and ends the program with 1."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
    import os, signal, sys
    from danaus import Actor, MeshFailed, ReplyLost, endpoint, on_unhandled_failure, this_host

    class Worker(Actor):
        def __init__(self, trouble=""):
            if trouble == "constructor":
                raise LookupError("no such file")
        @endpoint
        def work(self, trouble=""):
            if trouble == "raise":
                raise ValueError("bad input")
            if trouble == "die":
                sys.stderr.write("about to die\\n")
                os.kill(os.getpid(), signal.SIGKILL)
            return 1

    procs = this_host().spawn_procs({"gpus": 2}, name="workers")
    worker = procs.spawn("worker", Worker)
    worker.work.call().get(30)
"""


@pytest.fixture(params=["unix", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(tmp_path: Path, transport: str, body: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """The end of a script that has workers and then does `body`."""
    import os

    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PREAMBLE) + textwrap.dedent(body))
    environ = {"DANAUS_TRANSPORT": transport, "DANAUS_UNHANDLED_GRACE_S": "0.1", **os.environ, **environ}
    return subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=50, check=False, env=environ
    )


def test_a_failure_that_nobody_received_is_printed_once_and_ends_the_program_with_1(
    tmp_path: Path, transport: str
) -> None:
    done = run(
        tmp_path,
        transport,
        """
        ignored = worker.slice(gpus=1).work.broadcast("die")
        import threading
        threading.Event().wait(30)
        print("never reached")
        """,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("was killed by SIGKILL") == 1
    assert done.stderr.count("nobody received or handled") == 1
    for part in ("workers[gpus=1]", "about to die", "pid "):
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_that_a_caller_received_counts_as_handled(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        for trouble, kind in (("raise", ValueError), ("die", ReplyLost), ("", MeshFailed)):
            try:
                worker.slice(gpus=1).work.call_one(trouble).get(30)
            except kind as error:
                print(type(error).__name__)
        import threading
        threading.Event().wait(0.5)
        print("end")
        """,
    )
    assert done.stdout.split() == ["ValueError", "ReplyLost", "MeshFailed", "end"]
    assert done.stderr == "about to die\n"
    assert done.returncode == 0


def test_a_failure_in_a_future_waits_until_it_is_looked_at(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        kept = worker.slice(gpus=1).work.call_one("die")
        import threading
        threading.Event().wait(0.6)
        try:
            kept.get(30)
        except ReplyLost:
            print("received late")
        """,
    )
    assert (done.stdout, done.returncode) == ("received late\n", 0)


def test_a_failure_in_a_future_that_is_dropped_unseen_runs_the_hook(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        worker.slice(gpus=1).work.call_one("die")
        import threading
        threading.Event().wait(30)
        """,
    )
    assert done.returncode == 1
    assert done.stderr.count("nobody received or handled") == 1


def test_a_failure_found_only_at_the_end_of_the_program_still_counts(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        failing = this_host().spawn_procs(name="late").spawn("failing", Worker, "constructor")
        failing.initialized.exception(30)
        kept = worker.slice(gpus=1).work.call_one("die")
        while not kept.done():
            continue
        print("the script ends well")
        """,
    )
    assert done.stdout == "the script ends well\n"
    assert done.returncode == 1
    assert done.stderr.count("nobody received or handled") == 1


def test_an_exception_that_ends_the_script_is_printed_once(tmp_path: Path) -> None:
    done = run(tmp_path, "unix", "worker.slice(gpus=1).work.call_one('die').get(30)")
    assert done.returncode == 1
    assert done.stderr.count("was killed by SIGKILL") == 1
    assert "danaus: nobody" not in done.stderr


def test_success_prints_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "unix", "procs.stop().get(30)")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    done = run(tmp_path, "unix", "")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_hook_of_ones_own_replaces_the_default_and_none_brings_it_back(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        import threading
        heard = threading.Event()
        def hook(failure):
            print("hook:", failure.signal, failure.point)
            heard.set()
        on_unhandled_failure(hook)
        worker.slice(gpus=0).work.broadcast("die")
        assert heard.wait(30)
        print("goes on")
        on_unhandled_failure(None)
        worker.slice(gpus=1).work.broadcast("die")
        threading.Event().wait(30)
        """,
    )
    assert done.stdout == "hook: SIGKILL {'gpus': 0}\ngoes on\n"
    assert done.returncode == 1


def test_in_a_notebook_it_is_printed_and_nothing_exits(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        import types
        sys.modules["ipykernel"] = types.ModuleType("ipykernel")
        worker.slice(gpus=1).work.broadcast("die")
        import threading
        threading.Event().wait(1)
        print(worker.slice(gpus=0).work.call_one().get(30))
        """,
    )
    assert done.stdout == "1\n"
    assert done.returncode == 0
    assert done.stderr.count("nobody received or handled") == 1


def test_asyncio_programs_end_with_1_too(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        import asyncio
        async def main():
            worker.slice(gpus=1).work.broadcast("die")
            await asyncio.sleep(30)
        asyncio.run(main())
        """,
    )
    assert done.returncode == 1
    assert done.stderr.count("nobody received or handled") == 1
