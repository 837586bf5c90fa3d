"""How a started process comes to itself: reads its boot, and takes over what it inherited."""

import socket
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from danaus.config import Settings
from danaus.protocol.boot import decode_boot
from danaus.transport import tcp, unix
from danaus.transport.sockets import SocketListener
from danaus.transport.wires import Wires

B = TypeVar("B", bound=msgspec.Struct)


def read_boot(arguments: Sequence[str], kind: type[B]) -> tuple[B, socket.socket, socket.socket]:
    """The boot, the socket to the parent, and the listening socket; `arguments` are descriptors."""
    parent = socket.socket(fileno=int(arguments[0]))
    listening = socket.socket(fileno=int(arguments[1]))
    for inherited in (parent, listening):
        inherited.set_inheritable(False)
    with open(int(arguments[2]), "rb") as boot:
        return decode_boot(boot.read(), kind), parent, listening


def adopt_listener(sock: socket.socket, address: str) -> SocketListener:
    """The listener that a parent bound for this process."""
    if address.startswith(tcp.SCHEME):
        return tcp.adopt_listener(sock, address)
    return unix.adopt_listener(sock, address)


def local_wires(settings: Settings, sockets: str) -> Wires:
    """The transports between processes of one host."""
    return Wires({"unix": unix.UnixTransport(sockets), "tcp": tcp.TcpTransport()}, settings.transport)
