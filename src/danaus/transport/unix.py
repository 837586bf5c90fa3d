"""Unix sockets in a directory that only the own user may enter; the peer's user is checked as well."""

import os
import socket
import struct

from danaus.transport.sockets import BACKLOG, SocketListener, SocketStream

SCHEME = "unix:"


class UnixTransport:
    """Sockets between processes of one host, in `directory` (mode 0700)."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def listen(self, name: str) -> SocketListener:
        """A listener at `<directory>/<name>`."""
        path = os.path.join(self._directory, name)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(path)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        return adopt_listener(sock, SCHEME + path)

    def connect(self, address: str) -> SocketStream:
        """A stream to the socket at `address`."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(address.removeprefix(SCHEME))
        except OSError:
            sock.close()
            raise
        return SocketStream(sock, address)


def adopt_listener(sock: socket.socket, address: str) -> SocketListener:
    """A listener over a socket that a parent process bound."""
    return SocketListener(sock, address, accepts=_is_same_user, path=address.removeprefix(SCHEME))


def _is_same_user(sock: socket.socket) -> bool:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid in (os.geteuid(), 0))
