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


def descendants() -> Iterator[int]:
    """Pids of all processes below this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
    below = list(children.get(os.getpid(), []))
    while below:
        pid = below.pop()
        below.extend(children.get(pid, []))
        yield pid


def kill_descendants() -> None:
    """Kill everything below this process, until nothing is left, and reap it."""
    while True:
        pids = list(descendants())
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap()


def reap() -> None:
    """Wait for one child to end, if there is any."""
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
