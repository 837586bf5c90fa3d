"""Ctrl-C ends a wait at once and breaks nothing: the next call is right."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
    import os, random, signal, sys, threading, time
    from danaus import Actor, endpoint, this_host

    class Worker(Actor):
        @endpoint
        def echo(self, value):
            return value
        @endpoint
        async def wait(self):
            import asyncio
            await asyncio.get_running_loop().create_future()

    def interrupt_after(seconds):
        timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        return timer

    procs = this_host().spawn_procs({"gpus": 2})
    worker = procs.spawn("worker", Worker)
    one = worker.slice(gpus=0)
"""


AS_IN_THE_FOREGROUND = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A shell that starts the tests in the background has SIGINT ignored in them and below."""


@pytest.fixture(params=["unix", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(
    tmp_path: Path, transport: str, body: str, *, before: str = "", preamble: str = PREAMBLE
) -> "subprocess.CompletedProcess[str]":
    script = tmp_path / "script.py"
    script.write_text(AS_IN_THE_FOREGROUND + "".join(textwrap.dedent(part) for part in (before, preamble, body)))
    environ = {**os.environ, "DANAUS_TRANSPORT": transport}
    command = [sys.executable, script]
    return subprocess.run(command, capture_output=True, text=True, timeout=55, check=False, env=environ)


def test_ctrl_c_ends_a_get_at_once_and_the_mesh_works_on(tmp_path: Path, transport: str) -> None:
    done = run(
        tmp_path,
        transport,
        """
        worker.echo.call(0).get(30)
        for _ in range(5):
            waiting = one.wait.call_one()
            interrupt_after(0.02)
            begun = time.monotonic()
            try:
                waiting.get()
            except KeyboardInterrupt:
                assert time.monotonic() - begun < 10
            waiting.cancel()
            assert worker.echo.call("x").get(30).to_list() == ["x", "x"]
        print("done")
        """,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_an_interrupted_script_ends_as_python_scripts_do(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        worker.echo.call(0).get(30)
        interrupt_after(0.05)
        one.wait.call_one().get()
        """,
    )
    assert done.returncode == -signal.SIGINT
    assert done.stderr.count("KeyboardInterrupt") == 1
    assert "danaus: nobody" not in done.stderr


def test_interrupts_at_any_moment_leave_the_client_consistent(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        worker.echo.call(0).get(30)
        dice = random.Random(1)
        stop = threading.Event()
        def hammer():
            while not stop.wait(dice.uniform(0, 0.003)):
                os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=hammer)
        thread.start()
        number = interrupts = right = 0
        end = time.monotonic() + 1
        while time.monotonic() < end:
            try:
                armed.append(True)
                number += 1
                if number % 3 == 0:
                    assert worker.echo.call(number).get(20).to_list() == [number, number]
                elif number % 3 == 1:
                    assert one.echo.call_one([number]).get(20) == [number]
                else:
                    calls = [one.echo.call_one(each) for each in range(5)]
                    assert [call.get(20) for call in calls] == list(range(5))
                right += 1
                armed.clear()
            except KeyboardInterrupt:
                interrupts += 1
        stop.set()
        thread.join()
        assert interrupts > 20, interrupts
        assert right > 20, right
        assert worker.echo.call("still right").get(20).to_list() == ["still right"] * 2
        print("done")
        """,
        before="""
        import signal
        armed = []
        def handler(number, frame):
            if armed:  # once each time, so that the test itself is never hit where it counts
                armed.clear()
                raise KeyboardInterrupt
        signal.signal(signal.SIGINT, handler)
        """,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_interrupts_while_procs_start_and_stop_leave_nothing_behind(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        worker.echo.call(0).get(30)
        dice = random.Random(2)
        for _ in range(10):
            timer = interrupt_after(dice.uniform(0, 0.2))
            try:
                other = this_host().spawn_procs({"gpus": 2}, name="other")
                other.spawn("worker", Worker).echo.call(1).get(30)
                other.stop().get(30)
                while timer.is_alive():
                    time.sleep(0.01)
                time.sleep(0.1)
            except KeyboardInterrupt:
                pass
            timer.join()
            assert worker.echo.call("x").get(30).to_list() == ["x", "x"]
        print("done")
        """,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_asyncio_programs_are_interrupted_as_always(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        import asyncio
        async def main():
            await worker.echo.call(0)
            interrupt_after(0.05)
            try:
                await one.wait.call_one()
            except asyncio.CancelledError:
                print("cancelled")
                raise
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", worker.echo.call(1).get(30).to_list())
        """,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("cancelled\ninterrupted [1, 1]\n", "", 0)


def test_a_handler_of_ones_own_is_respected(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        worker.echo.call(0).get(30)
        heard = []
        signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
        waiting = one.wait.call_one()
        interrupt_after(0.05)
        try:
            waiting.get(0.3)
        except TimeoutError:
            pass
        waiting.cancel()
        assert heard == [signal.SIGINT]
        assert worker.echo.call(2).get(30).to_list() == [2, 2]
        print("done")
        """,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_a_handler_set_before_the_first_use_is_called_as_well(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        worker.echo.call(0).get(30)
        interrupt_after(0.05)
        waiting = one.wait.call_one()
        try:
            waiting.get(0.3)
        except TimeoutError:
            pass
        waiting.cancel()
        print(heard)
        """,
        before="""
        import signal
        heard = []
        signal.signal(signal.SIGINT, lambda *_: heard.append(1))
        """,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[1]\n", "", 0)


def test_first_use_in_another_thread_works_and_interrupts_stay_pythons(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        made = []
        def use():
            made.append(this_host().spawn_procs().spawn("worker", Worker))
            made[0].echo.call_one(1).get(30)
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert made[0].echo.call_one(2).get(30) == 2
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            print("interrupted")
        assert made[0].echo.call_one(3).get(30) == 3
        """,
        preamble=PREAMBLE[: PREAMBLE.index("    procs = ")],
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_ctrl_c_while_the_program_ends_still_leaves_nothing(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        class Slow(Actor):
            def __cleanup__(self, error):
                time.sleep(0.5)
            @endpoint
            def pid(self):
                return os.getpid()
        slow = procs.spawn("slow", Slow)
        print(*slow.pid.call().get(30).to_list(), flush=True)
        interrupt_after(0.2)
        """,
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    deadline = 500
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and deadline:
        deadline -= 1
        signal.sigtimedwait([], 0.01)
    assert deadline
