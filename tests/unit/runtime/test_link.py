"""Links over streams in memory, and over one that takes no more than a test allows."""

import errno
from collections.abc import Sequence

import pytest

from danaus.errors import AuthenticationFailed, Error, RemoteProtocolError, Unreachable, VersionMismatch
from danaus.protocol.frame import Bytes, Frame, encode_frame
from danaus.protocol.handshake import Handshake, Versions
from danaus.protocol.message import Code, Message, Output, Ping, Resolve, decode_message, encode_message
from danaus.runtime.link import Link
from danaus.runtime.reactor import READABLE, WRITABLE
from danaus.transport.inproc import InprocNetwork
from danaus.transport.stream import Poller, Stream
from unit.runtime.hand_driven import HandDriven

SECRET = b"s" * 32
VERSIONS = Versions(1, "0.1.0", "3.11.9")


class Owner:
    """Writes down what its links tell it."""

    def __init__(self) -> None:
        self.opened: list[Link] = []
        self.arrived: list[tuple[Message, bytes, list[bytes]]] = []
        self.closed: list[tuple[Link, Exception]] = []

    @property
    def messages(self) -> list[Message]:
        return [message for message, _, _ in self.arrived]

    @property
    def reasons(self) -> list[type[Exception]]:
        return [type(reason) for _, reason in self.closed]

    def link_opened(self, link: Link) -> None:
        self.opened.append(link)

    def frame_arrived(self, link: Link, message: Message, frame: Frame) -> None:
        self.arrived.append((message, bytes(frame.payload), [bytes(buffer) for buffer in frame.buffers]))

    def link_closed(self, link: Link, reason: Exception) -> None:
        self.closed.append((link, reason))


class Side:
    """One end of a link, and who owns it."""

    def __init__(
        self,
        name: str,
        reactor: HandDriven,
        stream: Stream,
        *,
        secret: bytes = SECRET,
        versions: Versions = VERSIONS,
        owner: Owner | None = None,
    ) -> None:
        self.owner = owner or Owner()
        initiator = name == "near"
        nonce = (b"1" if initiator else b"2") * 32
        handshake = Handshake(secret, name, nonce=nonce, initiator=initiator, versions=versions)
        scratch = memoryview(bytearray(64 * 1024))
        self.link = Link(stream, reactor, self.owner, handshake, scratch=scratch, open_within_s=30.0)  # type: ignore[arg-type]
        self.link.start()


@pytest.fixture
def reactor() -> HandDriven:
    return HandDriven()


def pair(reactor: HandDriven, **changes: object) -> tuple[Side, Side]:
    """Two ends whose streams are joined; `changes` are for the far one."""
    near, far = InprocNetwork().pair("inproc:far", "near", "far")
    return Side("near", reactor, near), Side("far", reactor, far, **changes)  # type: ignore[arg-type]


def open_pair(reactor: HandDriven) -> tuple[Side, Side]:
    near, far = pair(reactor)
    reactor.run()
    assert near.link.is_open
    assert far.link.is_open
    return near, far


# ---- opening


def test_both_sides_learn_who_the_other_is_and_tell_their_owner_once(reactor: HandDriven) -> None:
    near, far = open_pair(reactor)
    assert (near.link.peer, far.link.peer) == ("far", "near")
    assert near.owner.opened == [near.link]
    assert far.owner.opened == [far.link]
    assert reactor.num_timers == 0


def test_what_is_sent_before_the_link_is_open_arrives_in_order_with_what_is_sent_after(reactor: HandDriven) -> None:
    near, far = pair(reactor)
    near.link.send(Resolve("1"))
    near.link.send(Resolve("2"))
    assert far.owner.messages == []
    reactor.run()
    near.link.send(Resolve("3"))
    reactor.run()
    assert far.owner.messages == [Resolve("1"), Resolve("2"), Resolve("3")]


def test_what_its_owner_sends_when_it_opens_comes_behind_what_was_sent_before(reactor: HandDriven) -> None:
    class Greeting(Owner):
        def link_opened(self, link: Link) -> None:
            link.send(Resolve("greeting"))

    near, far = pair(reactor, owner=Greeting())
    far.link.send(Resolve("before"))
    reactor.run()
    assert near.owner.messages == [Resolve("before"), Resolve("greeting")]


def test_a_peer_with_another_secret_is_refused_on_both_sides_and_nothing_of_it_is_decoded(reactor: HandDriven) -> None:
    near, far = pair(reactor, secret=b"another" * 5)
    near.link.send(Resolve("secret plans"))
    far.link.send(Resolve("malice"))
    reactor.run()
    assert near.owner.reasons == far.owner.reasons == [AuthenticationFailed]
    assert near.owner.opened == far.owner.opened == []
    assert near.owner.messages == far.owner.messages == []
    assert reactor.num_timers == 0


def test_a_peer_of_another_version_is_told_why(reactor: HandDriven) -> None:
    near, far = pair(reactor, versions=Versions(1, "0.2.0", "3.11.9"))
    reactor.run()
    assert near.owner.reasons == far.owner.reasons == [VersionMismatch]
    assert "0.2.0" in str(near.owner.closed[0][1])
    assert "0.1.0" in str(far.owner.closed[0][1])


def test_a_peer_that_never_answers_counts_as_unreachable_when_the_time_is_over(reactor: HandDriven) -> None:
    stream, _ = InprocNetwork().pair("inproc:far", "near", "far")
    near = Side("near", reactor, stream)
    reactor.advance(29.9)
    assert near.owner.closed == []
    reactor.advance(0.1)
    [(link, reason)] = near.owner.closed
    assert link is near.link
    assert isinstance(reason, Unreachable)
    assert "inproc:far after 30 s" in str(reason)


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"".join(encode_frame(b"x" * 9000)), b"".join(encode_frame(b""))]
)
def test_a_stranger_is_shown_out(reactor: HandDriven, said: bytes) -> None:
    stream, stranger = InprocNetwork().pair("inproc:far", "near", "far")
    near = Side("near", reactor, stream)
    stranger.send([said])
    reactor.run()
    assert near.owner.reasons == [RemoteProtocolError]
    assert stranger.recv_into(memoryview(bytearray(9000))) > 0


def test_a_peer_that_hangs_up_before_it_proved_itself_never_opens_the_link(reactor: HandDriven) -> None:
    stream, stranger = InprocNetwork().pair("inproc:far", "near", "far")
    near = Side("near", reactor, stream)
    near.link.send(Resolve("1"))
    stranger.close()
    reactor.run()
    assert near.owner.reasons == [ConnectionResetError]
    assert near.owner.opened == []


# ---- messages


def test_payload_and_buffers_arrive_whole(reactor: HandDriven) -> None:
    near, far = open_pair(reactor)
    large = bytes(range(256)) * 4000
    near.link.send(Output("p1.0", 1), b"payload", [large, b"", bytearray(b"small")])
    near.link.send(Output("p1.0", 2), large)
    reactor.run()
    assert far.owner.arrived == [
        (Output("p1.0", 1), b"payload", [large, b"", b"small"]),
        (Output("p1.0", 2), large, []),
    ]


def test_code_goes_ahead_of_the_first_message_that_needs_it_and_once_for_each_link(reactor: HandDriven) -> None:
    near, far = open_pair(reactor)
    code = {"one": b"definition 1", "two": b"definition 2"}
    near.link.send(Resolve("first"), code={"one": code["one"]})
    near.link.send(Resolve("second"), code=code)
    near.link.send(Resolve("third"), code=code)
    reactor.run()
    expected = [Code("one"), Resolve("first"), Code("two"), Resolve("second"), Resolve("third")]
    assert far.owner.messages == expected
    assert [payload for message, payload, _ in far.owner.arrived if isinstance(message, Code)] == [*code.values()]
    other_near, other_far = open_pair(reactor)
    other_near.link.send(Resolve("first"), code=code)
    reactor.run()
    assert other_far.owner.messages == [Code("one"), Code("two"), Resolve("first")]


def test_code_of_a_message_that_waits_for_the_link_goes_ahead_of_it_too(reactor: HandDriven) -> None:
    near, far = pair(reactor)
    near.link.send(Resolve("first"), code={"one": b"definition"})
    near.link.send(Resolve("second"), code={"one": b"definition"})
    reactor.run()
    assert far.owner.messages == [Code("one"), Resolve("first"), Resolve("second")]


def test_a_header_that_is_no_message_ends_the_link(reactor: HandDriven) -> None:
    near, far = open_pair(reactor)
    near.link._stream.send([b"".join(encode_frame(b"\xc1"))])
    reactor.run()
    assert far.owner.reasons == [RemoteProtocolError]
    assert near.owner.reasons == [ConnectionResetError]


# ---- ends


def test_closing_tells_the_owner_why_once_and_the_other_side_that_the_peer_hung_up(reactor: HandDriven) -> None:
    near, far = open_pair(reactor)
    reason = Error("enough")
    near.link.close(reason)
    near.link.close(Error("again"))
    reactor.run()
    assert near.owner.closed == [(near.link, reason)]
    assert far.owner.reasons == [ConnectionResetError]
    assert "near closed the link" in str(far.owner.closed[0][1])


def test_what_is_sent_on_a_closed_link_goes_nowhere(reactor: HandDriven) -> None:
    near, far = open_pair(reactor)
    near.link.close(Error("enough"))
    near.link.send(Resolve("late"))
    reactor.run()
    assert far.owner.messages == []


def test_what_arrived_before_the_peer_hung_up_is_still_handed_over(reactor: HandDriven) -> None:
    near, far = open_pair(reactor)
    near.link.send(Resolve("last words"))
    near.link.close(Error("enough"))
    reactor.run()
    assert far.owner.messages == [Resolve("last words")]
    assert far.owner.reasons == [ConnectionResetError]


def test_an_owner_that_closes_its_link_over_a_message_hears_nothing_more_of_it(reactor: HandDriven) -> None:
    class Strict(Owner):
        def frame_arrived(self, link: Link, message: Message, frame: Frame) -> None:
            super().frame_arrived(link, message, frame)
            link.close(Error("that is not for me"))

    near, far = pair(reactor, owner=Strict())
    reactor.run()
    near.link._stream.send([*encode_frame(encode_message(Resolve("1"))), *encode_frame(encode_message(Resolve("2")))])
    reactor.run()
    assert far.owner.messages == [Resolve("1")]
    assert far.owner.reasons == [Error]


def test_a_link_closed_as_it_opens_sends_nothing_that_waited(reactor: HandDriven) -> None:
    class Unwilling(Owner):
        def link_opened(self, link: Link) -> None:
            link.close(Error("not you"))

    near, far = pair(reactor, owner=Unwilling())
    far.link.send(Resolve("1"))
    reactor.run()
    assert near.owner.messages == []
    assert far.owner.reasons == [Error]


@pytest.mark.parametrize("opened", [True, False])
def test_last_words_arrive_before_the_link_ends(reactor: HandDriven, opened: bool) -> None:
    near, far = pair(reactor)
    if opened:
        reactor.run()
    near.link.send(Resolve("last words"))
    near.link.close_after_flush(Error("enough"))
    reactor.run()
    assert far.owner.messages == [Resolve("last words")]
    assert near.owner.reasons == [Error]
    assert far.owner.reasons == [ConnectionResetError]


# ---- a stream that is slow


class Narrow:
    """A stream that takes `room` bytes and then no more, and gives what the test puts in."""

    address = "narrow:"

    def __init__(self) -> None:
        self.room = 1 << 30
        self.taken = bytearray()
        self.given = bytearray()
        self.broken: OSError | None = None
        self.wants_write = False
        self.closed = False
        self.sends: list[int] = []
        self.on_ready = lambda events: None

    def start(self, poller: Poller, on_ready: object) -> None:
        self.on_ready = on_ready  # type: ignore[assignment]

    def want_write(self, wanted: bool) -> None:
        self.wants_write = wanted

    def recv_into(self, view: memoryview) -> int:
        if not self.given:
            raise BlockingIOError(errno.EAGAIN, "")
        taken = min(len(view), len(self.given))
        view[:taken] = self.given[:taken]
        del self.given[:taken]
        return taken

    def send(self, parts: Sequence[Bytes]) -> int:
        if self.broken is not None:
            raise self.broken
        whole = b"".join(parts)
        self.sends.append(len(parts))
        if whole and not self.room:
            raise BlockingIOError(errno.EAGAIN, "")
        taken = min(self.room, len(whole))
        self.taken += whole[:taken]
        self.room -= taken
        return taken

    def close(self) -> None:
        self.closed = True


class Narrowed:
    """An open link over a narrow stream, whose other end is the test."""

    def __init__(self, reactor: HandDriven) -> None:
        self.stream = Narrow()
        self.side = Side("near", reactor, self.stream)
        peer = Handshake(SECRET, "far", nonce=b"2" * 32, initiator=False, versions=VERSIONS)
        hello = peer.start()
        [frame] = read(self.stream.taken)
        self.stream.taken.clear()
        for answer in (*hello, *peer.receive(frame.header)):
            self.stream.given += b"".join(encode_frame(answer))
        self.stream.on_ready(READABLE)
        self.stream.taken.clear()
        self.link = self.side.link
        assert self.link.is_open

    def give_room(self, room: int) -> None:
        self.stream.room = room
        self.stream.on_ready(WRITABLE)

    def received(self) -> list[Frame]:
        return read(self.stream.taken)


def read(stream: Bytes) -> list[Frame]:
    """The frames that are complete in `stream`."""
    from danaus.protocol.frame import FrameDecoder

    decoder, frames, left = FrameDecoder(memoryview(bytearray(1 << 16))), [], memoryview(bytes(stream))
    while left:
        view = decoder.get_buffer()
        step = min(len(view), len(left))
        view[:step] = left[:step]
        left = left[step:]
        frames += decoder.received(step)
    return frames


def ids(frames: Sequence[Frame]) -> list[Message]:
    return [decode_message(frame.header) for frame in frames]


@pytest.mark.parametrize("room", [1, 7, 1000, 100_000])
def test_a_stream_that_takes_little_at_a_time_gets_everything_in_order(reactor: HandDriven, room: int) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.room = 0
    size = 200_000 if room > 100 else 500
    expected = []
    for number in range(3):
        payload, buffers = bytes([number]) * size, [b"", b"x" * size, b"y", b""]
        narrow.link.send(Ping(number, 0), payload, buffers)
        expected.append((Ping(number, 0), payload, buffers))
    assert narrow.stream.wants_write
    turns = 0
    while narrow.stream.wants_write:
        turns += 1
        assert turns < 10_000
        narrow.give_room(room)
    frames = narrow.received()
    assert [(decode_message(f.header), bytes(f.payload), [bytes(b) for b in f.buffers]) for f in frames] == expected


def test_a_message_behind_one_that_waits_does_not_overtake_it(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.room = 10
    narrow.link.send(Resolve("first"))
    narrow.stream.room = 1000  # there is room again, but nobody has said so yet
    narrow.link.send(Resolve("second"))
    assert ids(narrow.received()) == []
    narrow.give_room(1000)
    assert ids(narrow.received()) == [Resolve("first"), Resolve("second")]
    assert not narrow.stream.wants_write


def test_the_sender_may_change_its_buffers_while_they_wait(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.room = 60_000
    payload, buffer = bytearray(b"p" * 100_000), bytearray(b"b" * 100_000)
    narrow.link.send(Ping(1, 0), payload, [buffer])
    payload[:] = buffer[:] = b"\0" * 100_000
    narrow.give_room(1 << 20)
    [frame] = narrow.received()
    assert bytes(frame.payload) == b"p" * 100_000
    assert bytes(frame.buffers[0]) == b"b" * 100_000


def test_parts_without_bytes_do_not_keep_the_link_busy(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.room = 0
    narrow.link.send(Ping(1, 0))
    narrow.link.send(Ping(2, 0), b"", [b""] * 200)
    calls = len(narrow.stream.sends)
    narrow.give_room(1 << 20)
    assert len(narrow.stream.sends) - calls < 10
    assert ids(narrow.received()) == [Ping(1, 0), Ping(2, 0)]
    assert not narrow.stream.wants_write


def test_a_stream_that_breaks_while_sending_ends_the_link_but_not_from_within_the_send(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.broken = BrokenPipeError(errno.EPIPE, "gone")
    narrow.link.send(Resolve("1"))
    assert narrow.side.owner.closed == []
    reactor.run()
    assert narrow.side.owner.reasons == [BrokenPipeError]
    assert narrow.stream.closed


def test_a_stream_that_breaks_while_it_flushes_ends_the_link_once(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.room = 3
    narrow.link.send(Resolve("1"))
    narrow.stream.broken = BrokenPipeError(errno.EPIPE, "gone")
    narrow.stream.on_ready(WRITABLE)
    narrow.link.send(Resolve("2"))
    reactor.run()
    assert narrow.side.owner.reasons == [BrokenPipeError]


def test_closing_forgets_what_was_not_written(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.room = 3
    narrow.link.send(Resolve("1"))
    narrow.link.close(Error("enough"))
    narrow.give_room(1000)
    assert len(narrow.stream.taken) == 3


def test_last_words_that_wait_are_written_before_the_link_ends(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.room = 3
    narrow.link.send(Resolve("last words"))
    narrow.link.close_after_flush(Error("enough"))
    assert not narrow.stream.closed
    narrow.give_room(5)
    assert not narrow.stream.closed
    narrow.give_room(1000)
    assert narrow.stream.closed
    assert ids(narrow.received()) == [Resolve("last words")]


def test_a_link_is_congested_while_many_parts_wait(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    narrow.stream.room = 0
    for _ in range(100):
        narrow.link.send(Resolve("1"))
    assert narrow.link.is_congested
    narrow.give_room(1 << 20)
    assert not narrow.link.is_congested


def test_a_message_that_comes_in_pieces_is_handed_over_when_it_is_whole(reactor: HandDriven) -> None:
    narrow = Narrowed(reactor)
    for part in b"".join(encode_frame(encode_message(Resolve("1")), b"payload")):
        assert narrow.side.owner.arrived == []
        narrow.stream.given.append(part)
        narrow.stream.on_ready(READABLE)
    assert narrow.side.owner.arrived == [(Resolve("1"), b"payload", [])]
