"""How a started process comes to itself: reads its boot from the inherited socket, and takes over the listener."""

import socket
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from danaus.config import Settings
from danaus.protocol.boot import LENGTH_BYTES, boot_length, decode_boot
from danaus.transport import tcp, unix
from danaus.transport.sockets import SocketListener
from danaus.transport.wires import Wires

B = TypeVar("B", bound=msgspec.Struct)


def read_boot(arguments: Sequence[str], kind: type[B]) -> tuple[B, socket.socket, socket.socket]:
    """The boot, the socket to the parent, and the listening socket; `arguments` are the two descriptors."""
    parent = socket.socket(fileno=int(arguments[0]))
    listening = socket.socket(fileno=int(arguments[1]))
    for inherited in (parent, listening):
        inherited.set_inheritable(False)
    body = _read(parent, boot_length(_read(parent, LENGTH_BYTES)))
    return decode_boot(body, kind), parent, listening


def adopt_listener(sock: socket.socket, address: str) -> SocketListener:
    """The listener that a parent bound for this process."""
    if address.startswith(tcp.SCHEME):
        return tcp.adopt_listener(sock, address)
    return unix.adopt_listener(sock, address)


def local_wires(settings: Settings, sockets: str) -> Wires:
    """The transports between processes of one host."""
    return Wires({"unix": unix.UnixTransport(sockets), "tcp": tcp.TcpTransport()}, settings.transport)


def _read(sock: socket.socket, num_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < num_bytes:
        chunk = sock.recv(num_bytes - len(parts))
        if not chunk:
            raise SystemExit(1)  # the parent is gone
        parts += chunk
    return bytes(parts)
