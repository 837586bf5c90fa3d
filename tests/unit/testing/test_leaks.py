import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from danaus.testing.leaks import LeakCheck

SLEEPER = "import signal; signal.pause()"


@pytest.fixture
def check(tmp_path: Path) -> LeakCheck:
    return LeakCheck(directory=tmp_path)


@contextmanager
def sleeper(environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEPER], env=environ, start_new_session=True) as process:
        yield process
        process.kill()


def test_nothing_left_behind_is_an_empty_list(check: LeakCheck, tmp_path: Path) -> None:
    with open(tmp_path / "gone", "wb") as file:
        file.write(b"x")
    (tmp_path / "gone").unlink()
    thread = threading.Thread(target=len, args=("",))
    thread.start()
    thread.join()
    assert check.compare(0.0) == []


def test_a_child_process_is_named(check: LeakCheck) -> None:
    with sleeper() as process:
        assert check.compare(0.0) == [f"process {process.pid} ({sys.executable} -S -c {SLEEPER})"]
    assert check.compare() == []


def test_a_child_nobody_waited_for_is_named(check: LeakCheck) -> None:
    with sleeper() as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        (line,) = check.compare(0.0)
    assert "zombie" in line


def test_a_daemon_that_left_its_parent_is_known_by_its_mark(tmp_path: Path) -> None:
    marked = LeakCheck(directory=tmp_path, mark="LEAKS_TEST=7")
    unmarked = LeakCheck(directory=tmp_path, mark="LEAKS_TEST=8")
    command = [sys.executable, "-S", "-c", SLEEPER]
    start = f"import subprocess as s; print(s.Popen({command!r}, stdout=s.DEVNULL).pid)"
    environ = {**os.environ, "LEAKS_TEST": "7"}
    out = subprocess.run([sys.executable, "-S", "-c", start], env=environ, stdout=subprocess.PIPE, check=True).stdout
    daemon = int(out)
    try:
        assert [line.partition(" (")[0] for line in marked.compare(0.0)] == [f"process {daemon}"]
        assert unmarked.compare(0.0) == []
    finally:
        os.kill(daemon, signal.SIGKILL)
    assert marked.compare() == []


def test_an_open_descriptor_is_named(check: LeakCheck) -> None:
    with socket.socket() as left:
        (line,) = check.compare(0.0)
        assert line.startswith(f"descriptor {left.fileno()} (socket:")


def test_what_only_a_reference_cycle_holds_is_no_leak(check: LeakCheck) -> None:
    cycle: list[object] = [multiprocessing.Pipe()]
    cycle.append(cycle)
    del cycle
    assert check.compare(0.0) == []


def test_a_file_and_a_socket_file_are_named(check: LeakCheck, tmp_path: Path) -> None:
    directory = tmp_path / "runtime"
    directory.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "a.sock"))
    assert check.compare(0.0) == [f"file {directory}", f"file {directory / 'a.sock'}"]


def test_in_the_systems_own_temp_directory_strangers_are_not_blamed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    check = LeakCheck()
    (tmp_path / "stranger").touch()
    (tmp_path / "danaus-1").touch()
    assert check.compare(0.0) == [f"file {tmp_path / 'danaus-1'}"]


def test_shared_memory_is_named(check: LeakCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its tracker is a process that stays for good.
    monkeypatch.setattr("multiprocessing.resource_tracker.register", lambda name, kind: None)
    monkeypatch.setattr("multiprocessing.resource_tracker.unregister", lambda name, kind: None)
    segment = SharedMemory(create=True, size=1)
    segment.close()
    assert check.compare(0.0) == [f"shared memory /dev/shm/{segment.name}"]
    segment.unlink()
    assert check.compare(0.0) == []


def test_shared_memory_of_another_program_is_no_leak(check: LeakCheck) -> None:
    start = (
        "import mmap, os, sys; f = open(sys.argv[1], 'w+b'); f.truncate(1); m = mmap.mmap(f.fileno(), 1);"
        "child = os.fork();\nif child: os._exit(0)\nos.setsid(); print(os.getpid(), flush=True); sys.stdin.read()"
    )
    path = f"/dev/shm/leaks-test-{os.getpid()}"
    command = [sys.executable, "-S", "-c", start, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout
        assert int(stranger.stdout.readline()) != stranger.wait()
        leaked = check.compare(0.0)
        os.unlink(path)
    assert [line for line in leaked if "shared memory" in line] == []


def test_a_thread_is_named(check: LeakCheck) -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="left")
    thread.start()
    assert check.compare(0.0) == ["thread 'left'"]
    go.set()
    assert check.compare() == []


def test_what_ends_within_the_grace_is_no_leak(check: LeakCheck) -> None:
    timer = threading.Timer(0.05, int)
    timer.start()
    assert check.compare() == []


def test_what_is_there_at_a_rebase_is_wanted(check: LeakCheck, tmp_path: Path) -> None:
    with sleeper():
        (tmp_path / "kept").touch()
        check.rebase()
        assert check.compare(0.0) == []
