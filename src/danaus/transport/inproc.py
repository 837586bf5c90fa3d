"""Streams between runtimes that live in one process, for tests and in-memory hosts. Faults can be put on the way."""

import errno
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence

from danaus.transport.stream import Bytes, Poller, Stream

SCHEME = "inproc:"

Carry = Callable[[str, str, bytes, Callable[[bytes], None]], None]
"""What happens to bytes on their way, given sender, receiver, bytes, deliver: plainly, `deliver(bytes)`."""


class InprocStream:
    """One end of a pipe of bytes in memory. Every `send` arrives as a whole."""

    def __init__(self, address: str, owner: str, carry: Carry | None) -> None:
        self.address = address
        self.owner = owner
        """Whose end it is."""
        self._carry = carry
        self._inbox: deque[memoryview] = deque()
        self._ended = False
        self._closed = False
        self._lock = threading.Lock()
        self._poller: Poller | None = None
        self._on_ready: Callable[[int], None] | None = None
        self._peer: InprocStream | None = None

    def join(self, peer: "InprocStream") -> None:
        """Make `peer` the other end."""
        self._peer = peer

    def start(self, poller: Poller, on_ready: Callable[[int], None]) -> None:
        """Be told of what arrives, also of what is here already."""
        self._poller, self._on_ready = poller, on_ready
        if self._inbox or self._ended:
            poller.post(self._tell)

    def want_write(self, wanted: bool) -> None:
        """Writing is always possible."""
        if wanted and self._poller is not None:
            self._poller.post(lambda: self._on_ready(select.EPOLLOUT) if self._on_ready else None)

    def recv_into(self, view: memoryview) -> int:
        """Read once."""
        if self._closed:
            raise OSError(errno.EBADF, "the stream is closed")
        with self._lock:
            if not self._inbox:
                if self._ended:
                    return 0
                raise BlockingIOError(errno.EAGAIN, "nothing to read yet")
            chunk = self._inbox[0]
            taken = min(len(chunk), len(view))
            view[:taken] = chunk[:taken]
            if taken == len(chunk):
                self._inbox.popleft()
            else:
                self._inbox[0] = chunk[taken:]
            return taken

    def send(self, parts: Sequence[Bytes]) -> int:
        """Give all of `parts` to the other end."""
        if self._closed or self._peer is None or self._peer.is_closed:
            raise BrokenPipeError(errno.EPIPE, "the other end is closed")
        whole = b"".join(parts)
        if self._carry is None:
            self._peer.arrive(whole)
        else:
            self._carry(self.owner, self._peer.owner, whole, self._peer.arrive)
        return len(whole)

    def close(self) -> None:
        """Close this end."""
        self._closed = True
        self._on_ready = None
        if self._peer is not None:
            self._peer.end()

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed."""
        return self._closed

    def arrive(self, chunk: bytes) -> None:
        """Bytes from the other end."""
        with self._lock:
            self._inbox.append(memoryview(chunk))
        if self._poller is not None:
            self._poller.post(self._tell)

    def end(self) -> None:
        """The other end closed."""
        self._ended = True
        if self._poller is not None:
            self._poller.post(self._tell)

    def _tell(self) -> None:
        if self._on_ready is not None and (self._inbox or self._ended):
            self._on_ready(select.EPOLLIN)
            self._tell_again()

    def _tell_again(self) -> None:
        # Not all of it was read, or not the end: like a level-triggered descriptor, say so again.
        if self._on_ready is not None and (self._inbox or self._ended) and self._poller is not None:
            self._poller.post(self._tell)


class InprocListener:
    """A name in an `InprocNetwork`."""

    def __init__(self, network: "InprocNetwork", address: str, owner: str) -> None:
        self.address = address
        self.owner = owner
        """Whom its streams belong to."""
        self._network = network
        self._waiting: list[Stream] = []
        self._on_stream: Callable[[Stream], None] | None = None
        self._poller: Poller | None = None

    def start(self, poller: Poller, on_stream: Callable[[Stream], None]) -> None:
        """Accept whatever comes, also what came before."""
        self._poller, self._on_stream = poller, on_stream
        poller.post(self._accept)

    def offer(self, stream: Stream) -> None:
        """A connection from outside."""
        self._waiting.append(stream)
        if self._poller is not None:
            self._poller.post(self._accept)

    def close(self) -> None:
        """Leave the network; what was not accepted is hung up."""
        self._network.forget(self.address)
        while self._waiting:
            self._waiting.pop().close()

    def _accept(self) -> None:
        while self._waiting and self._on_stream is not None:
            self._on_stream(self._waiting.pop(0))


class InprocNetwork:
    """The wires between runtimes of one process: names instead of ports."""

    def __init__(self, carry: Carry | None = None) -> None:
        self._carry = carry
        self._listeners: dict[str, InprocListener] = {}

    def transport_of(self, owner: str) -> "InprocTransport":
        """The transport of the runtime called `owner`."""
        return InprocTransport(self, owner)

    def listen(self, name: str, owner: str) -> InprocListener:
        """A listener called `name`."""
        listener = InprocListener(self, SCHEME + name, owner)
        self._listeners[listener.address] = listener
        return listener

    def connect(self, address: str, owner: str) -> InprocStream:
        """A stream of `owner` to the listener at `address`."""
        listener = self._listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {address}")
        near, far = self.pair(address, owner, listener.owner)
        listener.offer(far)
        return near

    def pair(self, address: str, near_owner: str, far_owner: str) -> tuple[InprocStream, InprocStream]:
        """Two joined ends, as a parent and its child have."""
        near, far = InprocStream(address, near_owner, self._carry), InprocStream(address, far_owner, self._carry)
        near.join(far)
        far.join(near)
        return near, far

    def forget(self, address: str) -> None:
        """Nobody listens at `address` any more."""
        self._listeners.pop(address, None)


class InprocTransport:
    """A `Transport`: an `InprocNetwork` as one runtime sees it."""

    def __init__(self, network: InprocNetwork, owner: str) -> None:
        self._network = network
        self._owner = owner

    def listen(self, name: str) -> InprocListener:
        """A listener called `name`."""
        return self._network.listen(name, self._owner)

    def connect(self, address: str) -> InprocStream:
        """A stream to the listener at `address`."""
        return self._network.connect(address, self._owner)
