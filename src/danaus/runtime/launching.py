"""Starting processes and hearing of their end at once: `ExecLauncher`, and the seam that in-memory hosts fill."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from danaus.config import process_environment
from danaus.protocol.boot import ProcBoot, encode_boot
from danaus.runtime.reactor import Reactor
from danaus.transport.sockets import SocketListener, SocketStream
from danaus.transport.stream import Listener, Stream

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
_READ_BYTES = 64 * 1024
_LAST_READS = 64
"""How much of what a dead process wrote is read at most: one that it left behind may write for ever."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended."""

    code: int | None
    signal: int | None


class ChildEvents(Protocol):
    """What a launcher tells about a child, on the driving thread."""

    def child_wrote(self, stream: int, data: bytes) -> None:
        """Bytes of its stdout (1) or stderr (2); empty at the end of the stream."""

    def child_exited(self, status: Exit) -> None:
        """It is gone. Comes once, after the last `child_wrote`."""


class Child(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def stream(self) -> Stream:
        """The parent's end of the socket pair."""

    def signal(self, number: int) -> None:
        """Send a signal to the process and everything in its session."""

    def pause_output(self, paused: bool) -> None:
        """Stop or go on reading what it writes."""


class Launcher(Protocol):
    """Starts procs."""

    def launch(self, boot: ProcBoot, listener: Listener, environ: Mapping[str, str], events: ChildEvents) -> Child:
        """Start a proc that listens at `listener`. `OSError` if that cannot be done."""


def python_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Run `module.main(arguments)` in a new interpreter, wherever danaus itself was imported from."""
    script = f"import sys; sys.path.insert(0, {_PACKAGE_PARENT!r}); from {module} import main; main(sys.argv[1:])"
    return [sys.executable, "-P", "-c", script, *arguments]


def start_python(
    module: str, boot: bytes, listener: SocketListener, environ: Mapping[str, str], *, pipes: bool
) -> tuple["subprocess.Popen[bytes]", SocketStream]:
    """Start an interpreter in a session of its own and give it `boot`, one end of a socket pair, and the listener."""
    near, far = socket.socketpair()
    with far, open(os.memfd_create("danaus-boot"), "w+b") as file:
        file.write(boot)
        file.seek(0)
        inherited = (far.fileno(), listener.fileno(), file.fileno())
        output = subprocess.PIPE if pipes else None
        popen = subprocess.Popen(
            python_command(module, [str(fd) for fd in inherited]),
            stdin=subprocess.DEVNULL,
            stdout=output if pipes else subprocess.DEVNULL,
            stderr=output,
            pass_fds=inherited,
            start_new_session=True,
            env=process_environment(environ),
            bufsize=0,
        )
    listener.close_copy()
    return popen, SocketStream(near, f"pid {popen.pid}")


class ExecLauncher:
    """Starts each proc as a new interpreter."""

    def __init__(self, reactor: Reactor, module: str) -> None:
        self._reactor = reactor
        self._module = module

    def launch(self, boot: ProcBoot, listener: Listener, environ: Mapping[str, str], events: ChildEvents) -> Child:
        """Start a proc."""
        assert isinstance(listener, SocketListener)
        popen, stream = start_python(self._module, encode_boot(boot), listener, environ, pipes=True)
        return _ExecChild(self._reactor, popen, stream, events)


class _ExecChild:
    def __init__(
        self, reactor: Reactor, popen: "subprocess.Popen[bytes]", stream: SocketStream, events: ChildEvents
    ) -> None:
        self.pid = popen.pid
        self.stream: Stream = stream
        self._reactor = reactor
        self._popen = popen
        self._events = events
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._pipes = {1: popen.stdout.fileno(), 2: popen.stderr.fileno()}
        self._pidfd = os.pidfd_open(popen.pid)
        for number, fd in self._pipes.items():
            os.set_blocking(fd, False)
            reactor.register(fd, partial(self._on_readable, number), _stays_open)
        reactor.register(self._pidfd, self._on_exit, _stays_open)

    def signal(self, number: int) -> None:
        """Signal the whole process group."""
        if self._popen.returncode is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return

    def pause_output(self, paused: bool) -> None:
        """Let the pipe fill up, or drain it again."""
        for fd in self._pipes.values():
            self._reactor.modify(fd, 0 if paused else 1)

    def _on_readable(self, number: int, _: int) -> None:
        self._on_output(number)

    def _on_output(self, number: int) -> bool:
        try:
            data = os.read(self._pipes[number], _READ_BYTES)
        except BlockingIOError:
            return False
        self._events.child_wrote(number, data)
        if not data:
            self._reactor.unregister(self._pipes.pop(number))
        return bool(data)

    def _on_exit(self, _: int) -> None:
        status = self._popen.poll()
        if status is None:
            return  # the event was for an earlier descriptor of this number
        self._reactor.unregister(self._pidfd)
        os.close(self._pidfd)
        # What it left in its session goes with it, before anybody is told.
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for number in list(self._pipes):
            for _ in range(_LAST_READS):
                if not self._on_output(number):
                    break
            if number in self._pipes:
                self._reactor.unregister(self._pipes.pop(number))
                self._events.child_wrote(number, b"")
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        self._events.child_exited(Exit(None, -status) if status < 0 else Exit(status, None))


def _stays_open() -> None:
    """The agent is never forked, so no copy of these is to be closed."""
