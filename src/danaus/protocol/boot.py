"""What a child process reads first, before any link: who it is and the secret it proves itself with.

It comes in an inherited file without a name, so the secret is in no directory, argument or environment variable.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from danaus.errors import RemoteProtocolError

B = TypeVar("B", bound=msgspec.Struct)


class ProcBoot(msgspec.Struct, frozen=True):
    """For a proc."""

    id: str
    name: str
    secret: bytes
    agent: str
    settings: Mapping[str, str | int | float]
    sys_path: tuple[str, ...]
    directory: str
    address: str
    """Where it listens; the socket is inherited."""
    sockets: str
    """Directory of the host's unix sockets."""
    procs: bytes
    """Wire form of the proc mesh it belongs to."""
    owner: str
    owner_agent: str
    bootstrap: bytes = b""
    code: tuple[tuple[str, bytes], ...] = ()


class AgentBoot(msgspec.Struct, frozen=True):
    """For an agent."""

    id: str
    secret: bytes
    settings: Mapping[str, str | int | float]
    address: str
    sockets: str
    client: str
    """Proc id of the client that started it and whose end is its own."""
    client_address: str
    client_pid: int


def encode_boot(boot: msgspec.Struct) -> bytes:
    """As bytes."""
    return msgspec.msgpack.encode(boot)


def decode_boot(body: bytes, kind: type[B]) -> B:
    """The inverse of `encode_boot`."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (ValueError, RecursionError) as error:  # msgspec's own are ValueErrors; deep nesting is the other
        raise RemoteProtocolError(f"the parent process sent no {kind.__name__}: {error}") from error
