"""`LeakCheck`: what a piece of code left behind: processes, descriptors, files, shared memory, threads."""

import fnmatch
import gc
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

LINUX = sys.platform == "linux"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
KEPT_DESCRIPTORS = ("/dev/nvidia*", "/dev/kfd", "/dev/dri/*")
"""Devices that a driver opens once for the life of the process."""
KEPT_FILES = ("pymp-*", "torchinductor_*")
"""Temp directories that multiprocessing and torch keep until the process ends, or for the next one."""
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What this process, its kin and its user's machine hold at one moment."""

    pids: frozenset[int]
    """Every process of the machine: listing is cheap, telling whose they are is left for the new ones."""
    descriptors: frozenset[tuple[int, str]]
    """(number, target) of each open descriptor of this process."""
    files: frozenset[str]
    segments: frozenset[str]
    threads: frozenset[threading.Thread]


class LeakCheck:
    """Compares what is there now with what was there when this object was made.

    Processes count if they descend from this one, or were started with `mark` in their environment: a daemon that left
    its parent can be told from a stranger by nothing else.

    Args:
        directory: where temp files are watched, with all below it. By default the system's, but of it only `danaus-*`,
            since other programs write there too.
        mark: `NAME=value`, present in the environment of whatever the code under test starts.
    """

    def __init__(self, *, directory: Path | None = None, mark: str | None = None) -> None:
        self._directory = directory or Path(tempfile.gettempdir())
        self._pattern = "danaus-*" if directory is None else "*"
        self._mark = mark
        self._baseline = self._take()

    def rebase(self) -> None:
        """Count whatever is there now as wanted, such as an agent that several tests share."""
        self._baseline = self._take()

    def compare(self, grace_s: float = 5.0) -> list[str]:
        """One line for each thing left behind; empty once all is gone, at the latest after `grace_s`."""
        leaked = self._look()
        if not leaked:
            return leaked
        gc.collect()  # what only a reference cycle holds, such as an exception's frames, is no leak
        deadline = time.monotonic() + grace_s
        while leaked := self._look():
            if time.monotonic() >= deadline:
                return leaked
            time.sleep(POLL_S)
        return leaked

    def _take(self) -> Snapshot:
        return Snapshot(
            pids=frozenset(_pids()),
            descriptors=frozenset(_descriptors()),
            files=frozenset(_files(self._directory, self._pattern)),
            segments=frozenset(_names(SHARED_MEMORY)),
            threads=frozenset(threading.enumerate()),
        )

    def _look(self) -> list[str]:
        before, after = self._baseline, self._take()
        leaked = [self._process(pid) for pid in sorted(after.pids - before.pids)]
        opened = sorted(after.descriptors - before.descriptors)
        leaked += [f"descriptor {number} ({target})" for number, target in opened]
        leaked += [f"file {path}" for path in sorted(after.files - before.files)]
        leaked += [_segment(name) for name in sorted(after.segments - before.segments)]
        leaked += [_thread(thread) for thread in after.threads - before.threads]
        return [line for line in leaked if line is not None]

    def _process(self, pid: int) -> str | None:
        """The line for a process that is new, or None if it is none of ours."""
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                zombie = process.status() == psutil.STATUS_ZOMBIE
                # A zombie elsewhere waits for a parent that is either reported itself or out of our reach.
                if zombie and process.ppid() != os.getpid():
                    return None
                if not self._is_kin(process):
                    return None
                if zombie:
                    return f"process {pid} (a zombie nobody waited for: {process.name()})"
                return f"process {pid} ({' '.join(process.cmdline())[:200] or process.name()})"
        except psutil.Error:
            return None

    def _is_kin(self, process: psutil.Process) -> bool:
        if any(parent.pid == os.getpid() for parent in process.parents()):
            return True
        if self._mark is None:
            return False
        name, _, value = self._mark.partition("=")
        return process.environ().get(name) == value


def _pids() -> Iterator[int]:
    if LINUX:
        return (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return iter(psutil.pids())


def _descriptors() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd" if LINUX else "/dev/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}") if LINUX else _kind(int(name))
        except OSError:  # the descriptor that listed the directory
            continue
        if not target.startswith("/dev/") or not any(fnmatch.fnmatch(target, kept) for kept in KEPT_DESCRIPTORS):
            yield int(name), target


def _kind(number: int) -> str:
    status = os.fstat(number)
    return f"{stat.filemode(status.st_mode)[0]} {status.st_dev}:{status.st_ino}"


def _files(directory: Path, pattern: str) -> Iterator[str]:
    """Paths at and below the entries of `directory` that match."""
    for path in _names(directory):
        if fnmatch.fnmatch(path, pattern) and not any(fnmatch.fnmatch(path, kept) for kept in KEPT_FILES):
            top = directory / path
            yield str(top)
            for parent, directories, files in os.walk(top):
                yield from (os.path.join(parent, name) for name in (*directories, *files))


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _segment(name: str) -> str | None:
    """The line for a segment that is new, or None if it is another program's."""
    path = SHARED_MEMORY / name
    try:
        owner = path.stat().st_uid
    except FileNotFoundError:
        return None
    if owner != os.getuid() or _mapped_by_strangers(str(path)):
        return None
    return f"shared memory {path}"


def _mapped_by_strangers(path: str) -> bool:
    kin = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    return any(path in _maps(pid) for pid in _pids() if pid not in kin)


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return ""


def _thread(thread: threading.Thread) -> str | None:
    # Python 3.11 keeps an entry for a foreign thread for ever, also when it has ended.
    if LINUX and not os.path.exists(f"/proc/self/task/{thread.native_id}"):
        return None
    return f"thread {thread.name!r}"
