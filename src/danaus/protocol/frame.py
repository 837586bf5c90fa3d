"""A frame: one message as bytes. Prefix, lengths of the buffers, header, payload, buffers."""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from danaus.errors import RemoteProtocolError

Bytes = bytes | bytearray | memoryview

_PREFIX = Struct("<HHIQ")
_MAGIC = 0xDA01
_MAX_BUFFERS = 0xFFFF
_SMALL_BYTES = 64 * 1024
_MAX_HEADER_BYTES = 16 * 1024 * 1024
_MAX_FRAME_BYTES = 1 << 44
"""More than any machine's memory: a claim beyond is damage."""
_STEP_BYTES = 16 * 1024 * 1024
"""How much is allocated ahead of the bytes themselves: what a peer claims is not what it sends."""


class Frame(NamedTuple):
    """A received frame. Buffers are the receiver's own and writable."""

    header: bytes
    payload: bytes | bytearray
    buffers: Sequence[bytearray]


def encode_frame(header: bytes, payload: Bytes = b"", buffers: Sequence[Bytes] = ()) -> list[Bytes]:
    """The parts of a frame, in the order to write them; payload and buffers are not copied when they are large."""
    if not buffers:
        prefix = _PREFIX.pack(_MAGIC, 0, len(header), len(payload))
        if len(payload) < _SMALL_BYTES:
            return [b"".join((prefix, header, payload))]
        return [prefix + header, payload]
    if len(buffers) > _MAX_BUFFERS:
        raise ValueError(f"a frame holds at most {_MAX_BUFFERS} buffers, got {len(buffers)}")
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    lengths = Struct(f"<{len(views)}Q").pack(*[len(view) for view in views])
    prefix = _PREFIX.pack(_MAGIC, len(views), len(header), len(payload))
    return [b"".join((prefix, lengths, header)), payload, *views]


class FrameDecoder:
    """Turns a stream of bytes into frames: bytes go where `get_buffer()` says, `received(n)` gives what is complete.

    Small frames are cut from one scratch buffer; the parts of a large one are received in place, so that each
    of its buffers is written once and belongs to the receiver.
    """

    def __init__(self, scratch: memoryview, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        """Largest frame accepted, set before a peer has proved who it is; None is no limit."""
        self._scratch = scratch
        self._partial = bytearray()
        self._lengths: Sequence[int] = ()
        self._parts: list[bytearray] = []
        """Of the large frame begun: header, payload and buffers so far. Only the last one is not complete."""
        self._filled = 0
        self._view = memoryview(b"")

    def get_buffer(self) -> memoryview:
        """Where the next bytes of the stream belong. Valid until `received`."""
        if self._parts:
            self._view = memoryview(self._parts[-1])[self._filled :]
            return self._view
        return self._scratch

    def received(self, num_bytes: int) -> list[Frame]:
        """Account for `num_bytes` written to the buffer; the frames complete now, in order."""
        if self._parts:
            self._view.release()
            frame = self._advance(num_bytes)
            return [] if frame is None else [frame]
        frames: list[Frame] = []
        if not self._partial and num_bytes >= _PREFIX.size:
            magic, num_buffers, header_bytes, payload_bytes = _PREFIX.unpack_from(self._scratch)
            middle = _PREFIX.size + header_bytes
            if magic == _MAGIC and not num_buffers and self.limit_bytes is None and middle + payload_bytes == num_bytes:
                # Nearly every read is one small frame.
                view = self._scratch
                return [Frame(bytes(view[_PREFIX.size : middle]), bytes(view[middle:num_bytes]), ())]
        if self._partial:
            self._partial += self._scratch[:num_bytes]
            whole = self._partial
            with memoryview(whole) as view:
                used = self._cut(view, frames)
            if self._parts:
                self._partial = bytearray()
            else:
                del whole[:used]
        else:
            view = self._scratch[:num_bytes]
            used = self._cut(view, frames)
            if used < num_bytes and not self._parts:
                self._partial += view[used:]
        return frames

    def _advance(self, num_bytes: int) -> Frame | None:
        """Account for bytes of the last part; make room for the next ones, or the frame if that was all."""
        parts, lengths = self._parts, self._lengths
        self._filled += num_bytes
        try:
            while self._filled == lengths[len(parts) - 1]:
                if len(parts) == len(lengths):
                    self._parts = []
                    return Frame(bytes(parts[0]), parts[1], parts[2:])
                parts.append(bytearray(min(lengths[len(parts)], _STEP_BYTES)))
                self._filled = 0
            part = parts[-1]
            if self._filled == len(part):
                part.extend(bytes(min(lengths[len(parts) - 1] - len(part), _STEP_BYTES)))
        except MemoryError as error:
            raise RemoteProtocolError(f"no memory for a frame of {sum(lengths)} bytes") from error
        return None

    def _cut(self, view: memoryview, frames: list[Frame]) -> int:
        """Append the whole frames in `view`; returns how many bytes they and a begun large frame took."""
        start, end = 0, len(view)
        while end - start >= _PREFIX.size:
            magic, num_buffers, header_bytes, payload_bytes = _PREFIX.unpack_from(view, start)
            if magic != _MAGIC:
                raise RemoteProtocolError("the stream is not Danaus's, or is damaged: a frame began with wrong bytes")
            body = start + _PREFIX.size + 8 * num_buffers
            if self.limit_bytes is not None and header_bytes + payload_bytes + 8 * num_buffers > self.limit_bytes:
                raise RemoteProtocolError(
                    f"a frame of more than {self.limit_bytes} bytes came before the handshake ended"
                )
            if header_bytes > _MAX_HEADER_BYTES:
                raise RemoteProtocolError(f"a frame claims a header of {header_bytes} bytes")
            if body > end:
                break
            lengths = Struct(f"<{num_buffers}Q").unpack_from(view, start + _PREFIX.size) if num_buffers else ()
            if num_buffers and self.limit_bytes is not None:
                raise RemoteProtocolError("a frame with buffers came before the handshake ended")
            total = header_bytes + payload_bytes + sum(lengths)
            if body + total <= end:
                middle = body + header_bytes
                stop = middle + payload_bytes
                buffers = []
                after = stop
                for length in lengths:
                    buffers.append(bytearray(view[after : after + length]))
                    after += length
                frames.append(Frame(bytes(view[body:middle]), bytes(view[middle:stop]), buffers))
                start = body + total
                if self.limit_bytes is not None:
                    break  # the next one may be judged by other limits
                continue
            if total <= _SMALL_BYTES:
                break
            if total > _MAX_FRAME_BYTES:
                raise RemoteProtocolError(f"a frame claims {total} bytes")
            self._begin_large(view[body:end], (header_bytes, payload_bytes, *lengths))
            return end
        return start

    def _begin_large(self, begun: memoryview, lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self._parts = [bytearray(lengths[0])]
        self._filled = 0
        self._advance(0)
        while begun:
            part, filled = self._parts[-1], self._filled
            step = min(len(part) - filled, len(begun))
            part[filled : filled + step] = begun[:step]
            begun = begun[step:]
            self._advance(step)
