"""Streams and listeners over kernel sockets."""

import os
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from danaus.runtime.reactor import READABLE, WRITABLE
from danaus.transport.sockets import SocketListener, SocketStream
from danaus.transport.stream import Listener, Stream, Transport
from danaus.transport.tcp import TcpTransport
from danaus.transport.unix import UnixTransport


class Watch:
    """A poller that writes down what it is asked, and is ready when the test says so."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Callable[[int], None]] = {}
        self.events: dict[int, int] = {}

    def register(self, fd: int, callback: Callable[[int], None], close: Callable[[], object]) -> None:
        self.callbacks[fd] = callback
        self.events[fd] = READABLE

    def modify(self, fd: int, events: int) -> None:
        self.events[fd] = events

    def unregister(self, fd: int) -> None:
        os.fstat(fd)  # raises if it was closed first
        del self.callbacks[fd], self.events[fd]

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def ready(self) -> None:
        for callback in list(self.callbacks.values()):
            callback(READABLE)

    def accept(self, accepted: list[Stream], count: int) -> None:
        """Be ready whenever the kernel is, until so many were accepted."""
        while len(accepted) < count:
            assert select.select(list(self.callbacks), [], [], 5)[0], "nobody connected"
            self.ready()


@pytest.fixture
def ends() -> Iterator[tuple[SocketStream, socket.socket]]:
    """A stream, and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    stream = SocketStream(ours, "the other end")
    theirs.settimeout(5)
    with theirs:
        yield stream, theirs
    stream.close()


def read(stream: Stream, size: int = 100) -> bytes:
    view = memoryview(bytearray(size))
    return bytes(view[: stream.recv_into(view)])


def receive(stream: SocketStream) -> bytes:
    """Like `read`, once there is something."""
    select.select([stream._sock], [], [], 5)
    return read(stream)


def test_the_parts_of_one_send_arrive_one_behind_the_other(ends: tuple[SocketStream, socket.socket]) -> None:
    stream, other = ends
    assert stream.send([b"one"]) == 3
    assert stream.send([b"two", bytearray(b"three"), memoryview(b"four"), b""]) == 12
    assert other.recv(100) == b"onetwothreefour"


def test_reading_tells_bytes_nothing_yet_and_the_end_apart(ends: tuple[SocketStream, socket.socket]) -> None:
    stream, other = ends
    with pytest.raises(BlockingIOError):
        read(stream)
    other.send(b"abcdef")
    assert [read(stream, 4), read(stream, 4)] == [b"abcd", b"ef"]
    other.shutdown(socket.SHUT_WR)
    assert read(stream) == b""


def test_a_full_socket_takes_a_part_and_then_no_more_until_there_is_room(
    ends: tuple[SocketStream, socket.socket],
) -> None:
    stream, other = ends
    large = bytes(1 << 20)
    left = stream.send([large, large])
    assert 0 < left < 2 << 20
    with pytest.raises(BlockingIOError):
        stream.send([large])
    while left:
        left -= len(other.recv(left))
    assert stream.send([b"room again"]) == 10


def test_more_parts_than_the_kernel_takes_at_once_are_taken_in_part(ends: tuple[SocketStream, socket.socket]) -> None:
    stream, other = ends
    parts = [b"x"] * 3000
    taken = stream.send(parts)
    assert 0 < taken < 3000
    assert len(other.recv(4000)) == taken


def test_a_stream_whose_other_end_is_gone_raises_that_it_broke(ends: tuple[SocketStream, socket.socket]) -> None:
    stream, other = ends
    other.close()
    with pytest.raises(BrokenPipeError):
        stream.send([b"late"])


def test_a_stream_is_watched_for_room_only_while_somebody_wants_it(ends: tuple[SocketStream, socket.socket]) -> None:
    stream, _ = ends
    watch = Watch()
    stream.start(watch, lambda events: None)
    [fd] = watch.events
    stream.want_write(True)
    assert watch.events == {fd: READABLE | WRITABLE}
    stream.want_write(False)
    assert watch.events == {fd: READABLE}


def test_a_closed_stream_is_watched_no_longer_and_may_be_closed_again(
    ends: tuple[SocketStream, socket.socket],
) -> None:
    stream, other = ends
    watch = Watch()
    stream.start(watch, lambda events: None)
    stream.close()
    stream.close()
    assert watch.callbacks == {}
    assert other.recv(1) == b""


# ---- listeners


class Server:
    """Something that listens, on either kind of socket."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.watch = Watch()
        self.accepted: list[SocketStream] = []
        self.connected: list[SocketStream] = []
        self.listener: Listener = transport.listen("name")
        self.listener.start(self.watch, self.accepted.append)

    def connect(self) -> SocketStream:
        self.connected.append(self.transport.connect(self.listener.address))
        return self.connected[-1]

    def close(self) -> None:
        self.listener.close()
        for stream in (*self.accepted, *self.connected):
            stream.close()


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    server = Server(UnixTransport(str(tmp_path)) if request.param == "unix" else TcpTransport())
    yield server
    server.close()


def test_everybody_who_connects_is_accepted_in_order(server: Server) -> None:
    streams = [server.connect() for _ in range(3)]
    for stream in streams:
        select.select([], [stream._sock], [], 5)
    server.watch.accept(server.accepted, 3)
    for stream, accepted, word in zip(streams, server.accepted, (b"a", b"b", b"c"), strict=True):
        stream.send([word])
        accepted.send([word.upper()])
    assert [receive(accepted) for accepted in server.accepted] == [b"a", b"b", b"c"]
    assert [receive(stream) for stream in streams] == [b"A", b"B", b"C"]


def test_a_turn_with_nobody_there_accepts_nobody(server: Server) -> None:
    server.watch.ready()
    assert server.accepted == []


def test_connecting_where_nobody_listens_any_more_fails_now_or_when_it_is_read(server: Server) -> None:
    server.listener.close()
    assert server.watch.callbacks == {}
    with pytest.raises(OSError):  # noqa: PT011 - which one is the kernel's affair
        receive(server.connect())


def test_a_unix_socket_leaves_its_path_to_the_child_it_was_handed_to_and_removes_it_when_closed(tmp_path: Path) -> None:
    transport = UnixTransport(str(tmp_path))
    handed, closed = transport.listen("handed"), transport.listen("closed")
    assert handed.address == f"unix:{tmp_path}/handed"
    handed.close_copy()
    closed.close()
    closed.close()
    assert os.listdir(tmp_path) == ["handed"]


def test_a_name_that_is_taken_cannot_be_listened_at(tmp_path: Path) -> None:
    transport = UnixTransport(str(tmp_path))
    listener = transport.listen("name")
    with pytest.raises(OSError, match="in use"):
        transport.listen("name")
    listener.close()


def test_tcp_listens_on_the_loopback_address_only() -> None:
    listener = TcpTransport().listen("any")
    assert listener.address.startswith("tcp:127.0.0.1:")
    listener.close()


def test_who_may_not_connect_is_hung_up_on_and_the_next_is_accepted() -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    verdicts = iter([False, True])
    listener = SocketListener(sock, "x", accepts=lambda _: next(verdicts))
    watch, accepted = Watch(), list[Stream]()
    listener.start(watch, accepted.append)
    address = sock.getsockname()
    with socket.create_connection(address, 5) as first, socket.create_connection(address, 5) as second:
        watch.accept(accepted, 1)
        assert first.recv(1) == b""
        [stream] = accepted
        stream.send([b"welcome"])
        assert second.recv(7) == b"welcome"
        stream.close()
    listener.close()
