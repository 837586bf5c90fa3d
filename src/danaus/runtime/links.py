"""`Links`: all links of one process, by the id of the peer; listens, connects, adopts."""

import os
import platform
from collections.abc import Iterator, Sequence
from typing import Protocol

from danaus.config import PROTOCOL, VERSION
from danaus.errors import Error
from danaus.protocol.frame import Frame
from danaus.protocol.handshake import Handshake, Versions
from danaus.protocol.message import Message
from danaus.runtime.link import Link
from danaus.runtime.reactor import Reactor
from danaus.transport.stream import Listener, Stream
from danaus.transport.wires import Wires

_SCRATCH_BYTES = 256 * 1024


class PeerEvents(Protocol):
    """What the table tells its owner, on the driving thread."""

    def peer_linked(self, link: Link) -> None:
        """A link to `link.peer` is open."""

    def message_arrived(self, link: Link, message: Message, frame: Frame) -> None:
        """A peer sent a message."""

    def peer_lost(self, link: Link, reason: Exception) -> None:
        """A link to `link.peer` that was open is gone; there may be another one."""

    def connect_failed(self, link: Link, reason: Exception) -> None:
        """A link that this side opened ended before the peer had proved itself."""


class Links:
    """Opens, accepts and finds links. A pair that connected to each other at once has two; either carries."""

    def __init__(
        self, me: str, secret: bytes, reactor: Reactor, wires: Wires, events: PeerEvents, *, connect_timeout_s: float
    ) -> None:
        self.me = me
        self._secret = secret
        self._versions = Versions(PROTOCOL, VERSION, platform.python_version())
        self._reactor = reactor
        self._wires = wires
        self._events = events
        self._connect_timeout_s = connect_timeout_s
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._by_peer: dict[str, list[Link]] = {}
        self._all: set[Link] = set()
        self._listener: Listener | None = None
        self._closing = False

    @property
    def address(self) -> str:
        """Where others connect to this process."""
        assert self._listener is not None
        return self._listener.address

    def listen(self, listener: Listener) -> None:
        """Accept links from `listener` until `close`."""
        self._listener = listener
        listener.start(self._reactor, self._accepted)

    def adopt(self, stream: Stream, *, initiator: bool) -> Link:
        """A link over a stream that exists already, as between parent and child."""
        return self._begin(stream, initiator=initiator)

    def connect(self, address: str) -> Link:
        """A link to `address`, opening. `OSError` if nobody can be there."""
        return self._begin(self._wires.connect(address), initiator=True)

    def find(self, peer: str) -> Link | None:
        """The link to use for `peer`, if there is one."""
        links = self._by_peer.get(peer)
        return links[0] if links else None

    def __iter__(self) -> Iterator[Link]:
        """One open link to each peer."""
        for links in list(self._by_peer.values()):
            yield links[0]

    def all_open(self) -> Sequence[Link]:
        """Every link that is open, second ones to a peer as well."""
        return [link for links in self._by_peer.values() for link in links]

    def close(self, reason: Exception) -> None:
        """Stop listening and end all links. On the driving thread."""
        self._closing = True
        if self._listener is not None:
            self._listener.close()
        for link in list(self._all):
            link.close(reason)

    def _accepted(self, stream: Stream) -> None:
        self._begin(stream, initiator=False)

    def _begin(self, stream: Stream, *, initiator: bool) -> Link:
        handshake = Handshake(self._secret, self.me, nonce=os.urandom(32), initiator=initiator, versions=self._versions)
        link = Link(
            stream, self._reactor, self, handshake, scratch=self._scratch, open_within_s=self._connect_timeout_s
        )
        self._all.add(link)
        link.start()
        return link

    # ---- LinkEvents

    def link_opened(self, link: Link) -> None:
        """Enter the link under its peer."""
        self._by_peer.setdefault(link.peer, []).append(link)
        self._events.peer_linked(link)

    def frame_arrived(self, link: Link, message: Message, frame: Frame) -> None:
        """Pass a message on."""
        self._events.message_arrived(link, message, frame)

    def link_closed(self, link: Link, reason: Exception) -> None:
        """Forget the link."""
        self._all.discard(link)
        links = self._by_peer.get(link.peer)
        if links is None or link not in links:
            if not self._closing and not isinstance(reason, Error | OSError):
                raise AssertionError("a link ended for no reason") from reason
            self._events.connect_failed(link, reason)
            return
        links.remove(link)
        if not links:
            del self._by_peer[link.peer]
        self._events.peer_lost(link, reason)
