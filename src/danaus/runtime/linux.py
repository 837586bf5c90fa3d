"""The few calls of Linux that Python does not offer: death signals and sub-reapers."""

import ctypes
import os
import signal
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends; exit if it has ended already."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Pids of the children of this process, the zombies included."""
    return _children_by_parent().get(os.getpid(), [])


def descendants() -> Iterator[int]:
    """Pids of all processes below this one."""
    by_parent = _children_by_parent()
    below = list(by_parent.get(os.getpid(), []))
    while below:
        pid = below.pop()
        below.extend(by_parent.get(pid, []))
        yield pid


def kill_descendants() -> None:
    """Kill everything below this process, until nothing is left, and reap it."""
    while pids := list(descendants()):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap(-1, wait=True)


def reap(pid: int, *, wait: bool = False) -> None:
    """Take note of the end of a child, -1 for any, if it has ended or if told to `wait` for that."""
    try:
        os.waitpid(pid, 0 if wait else os.WNOHANG)
    except ChildProcessError:
        return


def _children_by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        found.setdefault(int(fields[1]), []).append(int(name))
    return found


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
