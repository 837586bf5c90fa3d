"""Streams and listeners over kernel sockets, whatever their family."""

import os
import select
import socket
from collections.abc import Callable, Sequence

from danaus.transport.stream import Bytes, Poller, Stream

_MAX_PARTS = 512
BACKLOG = 4096


class SocketStream:
    """A non-blocking connected socket, or one that is connecting."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        self.address = address
        self._sock = sock
        self._poller: Poller | None = None

    def start(self, poller: Poller, on_ready: Callable[[int], None]) -> None:
        """Watch the socket."""
        self._poller = poller
        poller.register(self._sock.fileno(), on_ready, self._sock.close)

    def want_write(self, wanted: bool) -> None:
        """Watch for room in the socket's buffer as well."""
        assert self._poller is not None
        self._poller.modify(self._sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def recv_into(self, view: memoryview) -> int:
        """Read once."""
        return self._sock.recv_into(view)

    def send(self, parts: Sequence[Bytes]) -> int:
        """Write once."""
        if len(parts) == 1:
            return self._sock.send(parts[0])
        return self._sock.sendmsg(parts[:_MAX_PARTS])

    def close(self) -> None:
        """Close the socket."""
        if self._sock.fileno() >= 0:
            if self._poller is not None:
                self._poller.unregister(self._sock.fileno())
            self._sock.close()


class SocketListener:
    """A listening socket. `path` is removed when it is closed."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        *,
        accepts: Callable[[socket.socket], bool] = lambda _: True,
        path: str | None = None,
    ) -> None:
        sock.setblocking(False)
        self.address = address
        self._sock = sock
        self._accepts = accepts
        self._path = path
        self._poller: Poller | None = None

    def fileno(self) -> int:
        """The descriptor, to hand it to a child process."""
        return self._sock.fileno()

    def start(self, poller: Poller, on_stream: Callable[[Stream], None]) -> None:
        """Accept whatever comes."""
        self._poller = poller

        def on_ready(_: int) -> None:
            while True:
                try:
                    sock, _ = self._sock.accept()
                except BlockingIOError:
                    return
                except OSError:
                    return  # it hung up, or there is no descriptor left now; whoever waits is accepted later
                if self._accepts(sock):
                    on_stream(SocketStream(sock, self.address))
                else:
                    sock.close()

        poller.register(self._sock.fileno(), on_ready, self._sock.close)

    def close(self) -> None:
        """Close the socket and remove its path."""
        self.close_copy()
        if self._path is not None:
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                return

    def close_copy(self) -> None:
        """Close this process's copy after it was handed to a child; the path stays."""
        if self._sock.fileno() >= 0:
            if self._poller is not None:
                self._poller.unregister(self._sock.fileno())
            self._sock.close()
