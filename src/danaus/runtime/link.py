"""`Link`: frames between this process and one peer, over one stream. Proves the secret first, then carries messages."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from danaus.errors import AuthenticationFailed, ProtocolError, Unreachable, VersionMismatch
from danaus.protocol.frame import Bytes, Frame, FrameDecoder, encode_frame
from danaus.protocol.handshake import Handshake
from danaus.protocol.message import Code, Message, decode_message, encode_message
from danaus.runtime.pickling import Pickled
from danaus.runtime.reactor import WRITABLE, Reactor
from danaus.transport.stream import Stream

_READS_PER_TURN = 16
_SHORT_READ_BYTES = 64 * 1024
"""A read of less leaves nothing behind."""
_PARTS_PER_WRITE = 64
_HANDSHAKE_LIMIT_BYTES = 8 * 1024


class LinkEvents(Protocol):
    """What a link tells its owner, on the driving thread."""

    def link_opened(self, link: "Link") -> None:
        """The peer proved itself; `link.peer` is its id."""

    def frame_arrived(self, link: "Link", message: Message, frame: Frame) -> None:
        """A message came."""

    def link_closed(self, link: "Link", reason: Exception) -> None:
        """The link is gone, whoever ended it."""


class Link:
    """An authenticated, ordered flow of messages. `send` may be called from any thread and never blocks."""

    def __init__(
        self,
        stream: Stream,
        reactor: Reactor,
        events: LinkEvents,
        handshake: Handshake,
        *,
        scratch: memoryview,
        open_within_s: float,
    ) -> None:
        self.peer = ""
        self.is_open = False
        self.is_closed = False
        self._stream = stream
        self._reactor = reactor
        self._events = events
        self._handshake = handshake
        self._scratch = scratch
        self._decoder = FrameDecoder(scratch, _HANDSHAKE_LIMIT_BYTES)
        self._lock = threading.Lock()
        self._outbox: deque[Bytes] = deque()
        self._before_open: list[Sequence[Bytes]] = []
        self._wants_write = False
        self._num_read = 0
        self._when_flushed: list[Callable[[], None]] = []
        self._codes_sent: set[str] = set()
        self._open_within_s = open_within_s
        self._timer: object | None = reactor.call_later(open_within_s, self._give_up)

    @property
    def address(self) -> str:
        """Where the link leads."""
        return self._stream.address

    def start(self) -> None:
        """Begin the handshake. On the driving thread, or before anybody else has the link."""
        with self._lock:  # an answer to what arrives at once must not overtake the hello
            hellos = self._handshake.start()
            self._stream.start(self._reactor, self._on_ready)
            for hello in hellos:
                self._write(encode_frame(hello))

    def send(
        self,
        message: Message,
        payload: Bytes = b"",
        buffers: Sequence[Bytes] = (),
        code: Mapping[str, bytes] | None = None,
    ) -> None:
        """Send a message, now or as soon as the link is open. `code` goes ahead of it, once for each link.

        Silently does nothing on a closed link: whoever waits for an answer hears of the end by `link_closed`.
        """
        parts = encode_frame(encode_message(message), payload, buffers)
        with self._reactor.shield, self._lock:
            if self.is_closed:
                return
            if code:
                parts = [*self._new_code(code), *parts]
            if self.is_open:
                self._write(parts)
            else:
                self._before_open.append([_own(part) for part in parts])

    def answer(self, reply: Message, pickled: Pickled) -> None:
        """Send a reply to what came over this link."""
        self.send(reply, pickled.payload, pickled.buffers, pickled.code)

    def close(self, reason: Exception) -> None:
        """End the link and tell the owner why. On the driving thread."""
        if self.is_closed:
            return
        with self._lock:
            self.is_closed = True
            self._outbox.clear()
            self._before_open.clear()
        self._cancel_timer()
        self._stream.close()
        self._events.link_closed(self, reason)
        self._tell_flushed()

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once what was sent is written, or the link has ended. On the driving thread."""
        self._when_flushed.append(callback)
        self._tell_flushed()

    def close_after_flush(self, reason: Exception) -> None:
        """End the link once what was sent is written. On the driving thread."""
        self.when_flushed(partial(self.close, reason))

    def _tell_flushed(self) -> None:
        if self._when_flushed and not self._outbox and not self._before_open:
            callbacks, self._when_flushed = self._when_flushed, []
            for callback in callbacks:
                callback()

    @property
    def is_congested(self) -> bool:
        """Whether more than a few buffers' worth waits to be written."""
        return len(self._outbox) > 64

    def _new_code(self, code: Mapping[str, bytes]) -> list[Bytes]:
        parts: list[Bytes] = []
        for key, definition in code.items():
            if key not in self._codes_sent:
                self._codes_sent.add(key)
                parts.extend(encode_frame(encode_message(Code(key)), definition))
        return parts

    def _write(self, parts: Sequence[Bytes]) -> None:
        """Write now what the stream takes; keep copies of the rest, since the sender may change its buffers."""
        if self._outbox:
            self._outbox.extend(_own(part) for part in parts if len(part))  # an empty one would never be taken
            return
        try:
            taken = self._stream.send(parts)
        except BlockingIOError:
            taken = 0
        except OSError as error:
            self._fail_soon(error)
            return
        for part in parts:
            if taken >= len(part):
                taken -= len(part)
            else:
                self._outbox.append(_own(part[taken:] if taken else part))
                taken = 0
        if self._outbox:
            self._want_write(True)

    def _flush(self) -> None:
        with self._lock:
            while self._outbox:
                try:
                    taken = self._stream.send(list(islice(self._outbox, _PARTS_PER_WRITE)))
                except BlockingIOError:
                    return
                except OSError as error:
                    self._fail_soon(error)
                    return
                while taken and taken >= len(self._outbox[0]):
                    taken -= len(self._outbox.popleft())
                if taken:
                    self._outbox[0] = memoryview(self._outbox[0])[taken:]
            self._want_write(False)
        self._tell_flushed()

    def _want_write(self, wanted: bool) -> None:
        if wanted != self._wants_write:
            self._wants_write = wanted
            self._stream.want_write(wanted)

    def _fail_soon(self, error: Exception) -> None:
        # Never tell the owner from inside a send: it may hold its own locks.
        self._reactor.post(lambda: self.close(error))

    def _on_ready(self, events: int) -> None:
        if events & WRITABLE:
            self._flush()
        if events != WRITABLE:
            self._read()

    def read_to_end(self) -> None:
        """Take what a peer that has ended had still sent. On the driving thread."""
        before = -1
        while not self.is_closed and self._num_read != before:
            before = self._num_read
            self._read()

    def _read(self) -> None:
        decoder = self._decoder
        for _ in range(_READS_PER_TURN):
            if self.is_closed:
                return
            view = decoder.get_buffer()
            room = len(view)
            try:
                num_bytes = self._stream.recv_into(view)
            except BlockingIOError:
                return
            except OSError as error:
                self.close(error)
                return
            if not num_bytes:
                self.close(ConnectionResetError(f"{self.peer or self.address} closed the link"))
                return
            self._num_read += num_bytes
            try:
                self._take(decoder.received(num_bytes))
            except ProtocolError as error:
                self.close(error)
                return
            except Exception as error:
                self.close(error)  # a bug of ours: rather no link than one that has lost a message
                raise
            if num_bytes < min(room, _SHORT_READ_BYTES):
                return

    def _take(self, frames: Sequence[Frame]) -> None:
        while frames:
            if self.is_open:
                for frame in frames:
                    if self.is_closed:
                        return
                    self._events.frame_arrived(self, decode_message(frame.header), frame)
                return
            self._shake(frames[0])
            frames = self._decoder.received(0)

    def _shake(self, frame: Frame) -> None:
        try:
            answers = self._handshake.receive(frame.header)
        except (AuthenticationFailed, VersionMismatch, ProtocolError):
            if self._handshake.refusal is not None:
                with self._lock:
                    self._write(encode_frame(self._handshake.refusal))
            raise
        with self._lock:
            for answer in answers:
                self._write(encode_frame(answer))
        if self._handshake.done:
            self._cancel_timer()
            self.peer = self._handshake.peer
            self._decoder.limit_bytes = None
            self._events.link_opened(self)
            with self._lock:
                self.is_open = True
                for parts in self._before_open:
                    self._write(parts)
                self._before_open.clear()
            self._tell_flushed()

    def _give_up(self) -> None:
        if not self.is_open:
            self.close(Unreachable(self.address, self._open_within_s))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._reactor.cancel_timer(self._timer)
            self._timer = None


def _own(part: Bytes) -> Bytes:
    return part if isinstance(part, bytes) else bytes(part)
