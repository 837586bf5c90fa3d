"""Frames: what is written is what is read, however the bytes come, and a lying peer costs nothing."""

import struct
import tracemalloc
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import danaus.protocol.frame
from danaus.errors import RemoteProtocolError
from danaus.protocol.frame import Bytes, Frame, FrameDecoder, encode_frame

SCRATCH_BYTES = 256 * 1024
LARGE = bytes(range(256)) * 400  # more than is cut from the scratch buffer
HUGE = 40 * 1024 * 1024


def decoder(scratch_bytes: int = SCRATCH_BYTES, *, limit_bytes: int | None = None) -> FrameDecoder:
    return FrameDecoder(memoryview(bytearray(scratch_bytes)), limit_bytes)


def feed(to: FrameDecoder, stream: Bytes, steps: Iterable[int] = ()) -> list[Frame]:
    """Give `stream` in chunks of these sizes, and then as the decoder has room for it."""
    frames, left, sizes = [], memoryview(stream), iter(steps)
    while left:
        view = to.get_buffer()
        step = min(len(view), len(left), next(sizes, len(left)))
        view[:step] = left[:step]
        left = left[step:]
        frames += to.received(step)
    return frames


def plain(frames: Sequence[Frame]) -> list[tuple[bytes, bytes, list[bytes]]]:
    return [(bytes(header), bytes(payload), [bytes(each) for each in buffers]) for header, payload, buffers in frames]


def whole(header: bytes, payload: bytes = b"", buffers: Sequence[Bytes] = ()) -> bytes:
    return b"".join(encode_frame(header, payload, buffers))


def prefix(header_bytes: int, payload_bytes: int, lengths: Sequence[int] = (), *, magic: int = 0xDA01) -> bytes:
    """The beginning of a frame as any peer may claim it."""
    return struct.pack(f"<HHIQ{len(lengths)}Q", magic, len(lengths), header_bytes, payload_bytes, *lengths)


SHAPES = [
    (b"header", b"payload", []),
    (b"", b"", []),
    (b"header", b"", [b""]),
    (b"header", b"", [b"", b"x", b"", b""]),
    (b"header", LARGE, []),
    (b"", LARGE, []),
    (b"header", b"payload", [LARGE, b"", LARGE, b"end"]),
    (b"header", b"", [LARGE, b""]),
    (LARGE, b"", []),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_written_is_read(shape: tuple[bytes, bytes, list[bytes]]) -> None:
    assert plain(feed(decoder(), whole(*shape))) == [shape]


@pytest.mark.parametrize("scratch_bytes", [16, 17, 100, 4096])
def test_a_small_scratch_buffer_reads_the_same(scratch_bytes: int) -> None:
    stream = b"".join(whole(*shape) for shape in SHAPES)
    assert plain(feed(decoder(scratch_bytes), stream)) == SHAPES


def test_frames_come_out_byte_by_byte() -> None:
    shapes = [(b"one", b"1", []), (b"", b"", []), (b"two", b"", [b"a", b"", b"bc"]), (b"three", b"3" * 40, [])]
    stream = b"".join(whole(*shape) for shape in shapes)
    assert plain(feed(decoder(), stream, [1] * len(stream))) == shapes


def test_a_large_frame_comes_out_whatever_the_byte_it_was_cut_at() -> None:
    shape = (b"head", b"payload", [b"first", LARGE, b""])
    stream = whole(*shape) + whole(b"next")
    cuts = [*range(1, 60), len(stream) - 40, *range(len(stream) - 24, len(stream))]
    for cut in cuts:
        assert plain(feed(decoder(), stream, [cut])) == [shape, (b"next", b"", [])], f"cut at {cut}"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.binary(max_size=40), st.binary(max_size=60), st.lists(st.binary(max_size=30), max_size=3)),
        max_size=6,
    ),
    st.lists(st.integers(1, 50), max_size=40),
)
def test_small_frames_come_out_in_every_chunking(
    shapes: list[tuple[bytes, bytes, list[bytes]]], steps: list[int]
) -> None:
    stream = b"".join(whole(*shape) for shape in shapes)
    assert plain(feed(decoder(), stream, steps)) == shapes


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(SHAPES), max_size=4), st.lists(st.integers(1, 150_000), max_size=12))
def test_frames_of_all_sizes_come_out_in_every_chunking(
    shapes: list[tuple[bytes, bytes, list[bytes]]], steps: list[int]
) -> None:
    stream = b"".join(whole(*shape) for shape in shapes)
    assert plain(feed(decoder(), stream, steps)) == shapes


def test_buffers_belong_to_the_receiver_and_can_be_written() -> None:
    reading = decoder()
    sent = bytearray(b"sent")
    [small] = feed(reading, whole(b"h", b"", [sent]))
    [large] = feed(reading, whole(b"h", b"", [LARGE, b"tail"]))
    feed(reading, whole(b"overwrites the scratch buffer" * 99))
    for frame in (small, large):
        for buffer in frame.buffers:
            buffer[0] = 0
    assert sent == b"sent"
    assert bytes(small.buffers[0]) == b"\0ent"
    assert bytes(large.buffers[1]) == b"\0ail"


def test_any_buffer_is_written_as_its_bytes() -> None:
    numbers = memoryview(bytearray(struct.pack("<3I", 1, 2, 3))).cast("I")
    [frame] = feed(decoder(), whole(b"h", b"", [numbers]))
    assert frame.buffers == [struct.pack("<3I", 1, 2, 3)]


def test_large_parts_are_not_copied_when_they_are_written() -> None:
    payload, buffer = LARGE, memoryview(LARGE)
    assert encode_frame(b"h", payload)[-1] is payload
    assert encode_frame(b"h", payload, [buffer])[1] is payload
    assert encode_frame(b"h", b"", [buffer])[-1].obj is LARGE  # type: ignore[union-attr]


def test_more_buffers_than_a_frame_can_hold_are_refused_by_the_sender() -> None:
    with pytest.raises(ValueError, match="at most 65535 buffers, got 65536"):
        encode_frame(b"h", b"", [b""] * 65536)


def test_as_many_buffers_as_a_frame_can_hold_arrive() -> None:
    [frame] = feed(decoder(), whole(b"h", b"", [b"x"] * 65535))
    assert len(frame.buffers) == 65535


@pytest.mark.parametrize("stream", [b"GET / HTTP/1.1\r\n", b"\0" * 100, whole(b"h")[::-1]])
def test_a_stream_of_something_else_is_refused(stream: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not Danaus's"):
        feed(decoder(), stream)


def test_a_damaged_frame_behind_a_whole_one_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="wrong bytes"):
        feed(decoder(), whole(b"fine") + prefix(1, 1, magic=0x01DA) + b"xy")


@pytest.mark.parametrize("stream", [whole(b"header", b"payload"), whole(b"h", b"", [b"one", LARGE])])
def test_a_frame_cut_short_gives_nothing(stream: bytes) -> None:
    for cut in (1, 15, 16, 17, len(stream) // 2, len(stream) - 1):
        assert feed(decoder(), stream[:cut]) == []


# ---- before the handshake


def test_a_frame_as_large_as_the_limit_is_taken_and_a_larger_one_refused_by_its_prefix() -> None:
    assert len(feed(decoder(limit_bytes=100), whole(b"h" * 40, b"p" * 60))) == 1
    with pytest.raises(RemoteProtocolError, match="more than 100 bytes came before the handshake"):
        feed(decoder(limit_bytes=100), prefix(41, 60))
    with pytest.raises(RemoteProtocolError, match="more than 100 bytes"):
        feed(decoder(limit_bytes=100), prefix(1, 1 << 62))


def test_no_buffers_are_taken_before_the_handshake() -> None:
    with pytest.raises(RemoteProtocolError, match="buffers came before the handshake"):
        feed(decoder(limit_bytes=100), whole(b"h", b"", [b"x"]))
    with pytest.raises(RemoteProtocolError, match="before the handshake"):
        feed(decoder(limit_bytes=100), prefix(1, 0, [0] * 60000)[:16])


def test_frames_behind_the_one_that_ends_the_handshake_are_judged_by_the_new_limit() -> None:
    reading = decoder(limit_bytes=100)
    frames = feed(reading, whole(b"proof") + whole(b"h" * 200) + whole(b"next", b"", [b"x"]))
    assert plain(frames) == [(b"proof", b"", [])]
    reading.limit_bytes = None
    assert plain(reading.received(0)) == [(b"h" * 200, b"", []), (b"next", b"", [b"x"])]
    assert reading.received(0) == []


# ---- lies


def test_a_header_no_message_has_is_refused_by_the_prefix() -> None:
    with pytest.raises(RemoteProtocolError, match="claims a header of 16777217 bytes"):
        feed(decoder(), prefix((16 << 20) + 1, 0))


@pytest.mark.parametrize(("payload", "lengths"), [(1 << 45, []), (0, [1 << 45]), (1 << 63, []), (0, [1 << 63] * 100)])
def test_a_frame_larger_than_any_memory_is_refused_by_the_prefix(payload: int, lengths: list[int]) -> None:
    with pytest.raises(RemoteProtocolError, match=r"a frame claims \d+ bytes"):
        feed(decoder(), prefix(1, payload, lengths) + b"h")


def traced_peak(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("payload", "lengths"), [(1 << 40, []), (0, [1 << 30] * 1000), (5, [1, 1 << 42, 1 << 42])])
def test_what_a_peer_only_claims_takes_no_memory(payload: int, lengths: list[int]) -> None:
    reading = decoder()
    stream = prefix(1, payload, lengths) + b"h" * 1000
    assert traced_peak(lambda: feed(reading, stream)) < 20 << 20
    assert len(reading.get_buffer()) > 0


def test_a_frame_beyond_memory_is_a_protocol_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(size: int) -> bytearray:
        if size > 1 << 20:
            raise MemoryError
        return bytearray(size)

    reading = decoder()
    monkeypatch.setattr(danaus.protocol.frame, "bytearray", exhausted, raising=False)
    with pytest.raises(RemoteProtocolError, match="no memory for a frame of 1099511627777 bytes"):
        feed(reading, prefix(1, 1 << 40) + b"h")


def test_a_part_that_needs_room_again_and_again_arrives_whole() -> None:
    reading = decoder()
    stream = bytearray(prefix(1, HUGE, [0, 5]) + b"h")
    feed(reading, stream)
    left = HUGE
    while left:
        view = reading.get_buffer()
        assert len(view) <= 16 << 20
        taken = min(len(view), left)
        view[0] = view[taken - 1] = 7
        assert reading.received(taken) == []
        left -= taken
    [frame] = feed(reading, b"12345")
    assert len(frame.payload) == HUGE
    assert (frame.payload[0], frame.payload[1], frame.payload[-1]) == (7, 0, 7)
    assert frame.buffers == [b"", b"12345"]
