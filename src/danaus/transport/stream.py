"""The seam between what carries bytes and what gives them meaning: `Stream`, `Listener`, `Transport`."""

from collections.abc import Callable, Sequence
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class Poller(Protocol):
    """The part of the reactor that a stream needs."""

    def register(self, fd: int, callback: Callable[[int], None], close: Callable[[], object]) -> None:
        """Call back whenever `fd` can be read."""

    def modify(self, fd: int, events: int) -> None:
        """Change what `fd` is watched for."""

    def unregister(self, fd: int) -> None:
        """Forget `fd`."""

    def post(self, callback: Callable[[], None]) -> None:
        """Run `callback` soon."""


class Stream(Protocol):
    """An ordered, reliable flow of bytes to one peer. Nothing here blocks."""

    @property
    def address(self) -> str:
        """Where it leads, for messages to people."""

    def start(self, poller: Poller, on_ready: Callable[[int], None]) -> None:
        """Call `on_ready(events)` when there is something to read, the peer hung up, or writing is possible again."""

    def want_write(self, wanted: bool) -> None:
        """Ask to be told when writing is possible."""

    def recv_into(self, view: memoryview) -> int:
        """Bytes read; 0 at the end of the stream. `BlockingIOError` if there are none yet, `OSError` if it broke."""

    def send(self, parts: Sequence[Bytes]) -> int:
        """Bytes taken of `parts`. `BlockingIOError` if none can be taken now, `OSError` if it broke."""

    def close(self) -> None:
        """Close this end; the peer reads the end of the stream."""


class Listener(Protocol):
    """Accepts streams at an address that others can `connect` to."""

    @property
    def address(self) -> str:
        """Where to connect."""

    def start(self, poller: Poller, on_stream: Callable[[Stream], None]) -> None:
        """Call `on_stream` with each stream that arrives."""

    def close(self) -> None:
        """Accept no more, and remove what it left in the file system."""


class Transport(Protocol):
    """One kind of wire. A new one is one module with a class like this."""

    def listen(self, name: str) -> Listener:
        """A listener; `name` is unique on this host and may be used in its address."""

    def connect(self, address: str) -> Stream:
        """A stream to `address`, perhaps still being set up. `OSError` if nobody can be there."""
