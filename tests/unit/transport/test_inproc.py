"""Streams and listeners in memory."""

import errno
from collections.abc import Callable

import pytest

from danaus.runtime.reactor import READABLE, WRITABLE
from danaus.transport.inproc import InprocNetwork, InprocStream
from danaus.transport.stream import Stream
from unit.runtime.hand_driven import HandDriven


@pytest.fixture
def poller() -> HandDriven:
    return HandDriven()


def pair() -> tuple[InprocStream, InprocStream]:
    return InprocNetwork().pair("inproc:x", "near", "far")


def read(stream: Stream, size: int = 100) -> bytes:
    view = memoryview(bytearray(size))
    return bytes(view[: stream.recv_into(view)])


def test_bytes_arrive_in_the_order_sent_each_way() -> None:
    near, far = pair()
    assert near.send([b"one", bytearray(b"two"), memoryview(b"three")]) == 11
    near.send([b"four"])
    far.send([b"back"])
    assert (read(far), read(far), read(near)) == (b"onetwothree", b"four", b"back")


def test_a_small_buffer_takes_a_part_and_the_rest_stays() -> None:
    near, far = pair()
    near.send([b"abcdef"])
    assert [read(far, 4), read(far, 4)] == [b"abcd", b"ef"]


def test_nothing_to_read_yet_is_told_from_the_end_of_the_stream() -> None:
    near, far = pair()
    with pytest.raises(BlockingIOError):
        read(far)
    near.send([b"last words"])
    near.close()
    assert read(far) == b"last words"
    assert read(far) == b""
    assert read(far) == b""


@pytest.mark.parametrize("closed", ["near", "far"])
def test_a_stream_closed_at_either_end_takes_no_more(closed: str) -> None:
    near, far = pair()
    (near if closed == "near" else far).close()
    with pytest.raises(BrokenPipeError):
        near.send([b"late"])


def test_a_closed_end_gives_no_more() -> None:
    near, far = pair()
    near.send([b"x"])
    far.close()
    with pytest.raises(OSError, match="closed") as caught:
        read(far)
    assert caught.value.errno == errno.EBADF


def test_whoever_reads_is_told_of_what_arrives_and_of_what_is_there_already(poller: HandDriven) -> None:
    near, far = pair()
    told: list[tuple[int, bytes]] = []
    near.send([b"early"])
    far.start(poller, lambda events: told.append((events, read(far))))
    poller.run()
    near.send([b"late"])
    assert told == [(READABLE, b"early")]
    poller.run()
    assert told == [(READABLE, b"early"), (READABLE, b"late")]


@pytest.mark.parametrize("early", [True, False])
def test_the_end_is_told_also_to_who_reads_a_little_at_a_time(poller: HandDriven, early: bool) -> None:
    near, far = pair()
    got: list[bytes] = []

    def on_ready(_: int) -> None:
        got.append(read(far, 2))
        if not got[-1]:
            far.close()

    if early:
        near.send([b"abcde"])
        near.close()
    far.start(poller, on_ready)
    if not early:
        near.send([b"abcde"])
        near.close()
    poller.run()
    assert got == [b"ab", b"cd", b"e", b""]


def test_a_closed_end_is_told_nothing_more(poller: HandDriven) -> None:
    near, far = pair()
    told: list[int] = []
    far.start(poller, told.append)
    near.send([b"x"])
    far.close()
    poller.run()
    assert told == []


def test_writing_is_always_possible(poller: HandDriven) -> None:
    near, _ = pair()
    told: list[int] = []
    near.start(poller, told.append)
    near.want_write(False)
    poller.run()
    assert told == []
    near.want_write(True)
    poller.run()
    assert told == [WRITABLE]


def test_a_listener_gives_out_what_connects_before_and_after_it_starts(poller: HandDriven) -> None:
    network = InprocNetwork()
    mine, theirs = network.transport_of("server"), network.transport_of("client")
    listener = mine.listen("name")
    accepted: list[Stream] = []
    first = theirs.connect(listener.address)
    first.send([b"first"])
    listener.start(poller, accepted.append)
    poller.run()
    second = theirs.connect(listener.address)
    second.send([b"second"])
    poller.run()
    assert [read(stream) for stream in accepted] == [b"first", b"second"]
    assert listener.address == first.address == "inproc:name"


def test_nobody_can_connect_where_nobody_listens_or_no_longer_does() -> None:
    network = InprocNetwork()
    transport = network.transport_of("anyone")
    with pytest.raises(ConnectionRefusedError, match="inproc:name"):
        transport.connect("inproc:name")
    listener = transport.listen("name")
    waiting = transport.connect("inproc:name")
    listener.close()
    assert read(waiting) == b""
    with pytest.raises(ConnectionRefusedError):
        transport.connect("inproc:name")


def test_what_carries_bytes_may_deliver_them_later_twice_or_never() -> None:
    held: list[tuple[str, str, bytes, Callable[[bytes], None]]] = []
    network = InprocNetwork(lambda *each: held.append(each))
    near, far = network.pair("inproc:x", "near", "far")
    for part in (b"a", b"b", b"c"):
        near.send([part])
    far.send([b"back"])
    assert [each[:3] for each in held] == [
        ("near", "far", b"a"),
        ("near", "far", b"b"),
        ("near", "far", b"c"),
        ("far", "near", b"back"),
    ]
    for number in (2, 0, 0, 3):
        _, _, data, deliver = held[number]
        deliver(data)
    assert [read(far), read(far), read(far), read(near)] == [b"c", b"a", b"a", b"back"]
