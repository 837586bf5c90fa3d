"""TCP. Plain, so between processes of one host only: the listener is bound to the loopback address."""

import socket

from danaus.transport.sockets import BACKLOG, SocketListener, SocketStream

SCHEME = "tcp:"
_LOOPBACK = "127.0.0.1"


class TcpTransport:
    """Sockets over loopback TCP."""

    def listen(self, name: str) -> SocketListener:
        """A listener on a free port; `name` is not used."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.bind((_LOOPBACK, 0))
        sock.listen(BACKLOG)
        return adopt_listener(sock, f"{SCHEME}{_LOOPBACK}:{sock.getsockname()[1]}")

    def connect(self, address: str) -> SocketStream:
        """A stream to `tcp:host:port`, still connecting."""
        host, _, port = address.removeprefix(SCHEME).rpartition(":")
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.connect((host, int(port)))
        except BlockingIOError:
            pass
        except OSError:
            sock.close()
            raise
        return SocketStream(sock, address)


def adopt_listener(sock: socket.socket, address: str) -> SocketListener:
    """A listener over a socket that a parent process bound."""

    def without_delay(accepted: socket.socket) -> bool:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return True

    return SocketListener(sock, address, accepts=without_delay)
