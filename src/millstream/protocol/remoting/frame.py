"""Frames: `int32 total | int32 (type << 24 | header length) | header | body`; total excludes itself.

The decoder takes the stream in pieces of any size and never buffers more than one frame beyond the last piece.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Final, NoReturn

from millstream.model.errors import ConnectionFailed
from millstream.protocol.remoting.command import (
    HeaderType,
    RemotingCommand,
    decode_header,
    decode_json,
    decode_too_long,
    encode_header,
    protocol_violation,
)
from millstream.protocol.remoting.request_shape import ShapedRun, as_commands
from millstream.protocol.remoting.shape_memory import ShapeMemory

__all__ = [
    "FRAME_HEAD",
    "MAX_ANSWER_HEADER_BYTES",
    "MAX_FRAME_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_JOINED_BYTES",
    "MAX_JUDGED_HEADER_BYTES",
    "FrameDecoder",
    "encode_frame",
    "written_parts",
]

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a frame at most, as RocketMQ's default `frameMaxLength`."""

MAX_HEADER_BYTES: Final = 1024 * 1024
"""Bytes of a request's header at most: far more than the longest properties need. A longer one that fits a frame is
answered by a refusal."""

MAX_ANSWER_HEADER_BYTES: Final = 4 * 1024 * 1024
"""Bytes of an answer's header at most: a batch's answer lists the id of each message."""

MAX_JOINED_BYTES: Final = 64 * 1024
"""Bytes of a buffer up to which copying it beside its neighbours costs less than a write of its own."""

_LARGE_BODY_BYTES: Final = 64 * 1024
"""Bytes of a body from which on it is received at its own place."""

_ROOM_FACTOR: Final = 8
"""How many times what has arrived of a frame the room for its body may be: a length alone reserves nothing."""

_COPIED_BYTES: Final = 64 * 1024
"""Bytes of data up to which one copy of all costs less than to make two views for each frame."""

_TAIL_BYTES: Final = 1024
"""Bytes of a large body that `feed` takes: when it does, nobody looks into the buffer, which then needs no copy."""

FRAME_HEAD: Final = struct.Struct(">iBBH")
"""What a frame begins with: its length, the type of its header and that one's length in two parts."""

_HEAD_BYTES = FRAME_HEAD.size
_LENGTH_WORD_BYTES = 4
_JSON = int(HeaderType.JSON)


MAX_JUDGED_HEADER_BYTES: Final = 64 * 1024
"""Bytes of a request's header if requests are checked by it before their bodies are received."""


class _LargeBody:
    """The body of a frame in the making. It becomes `bytes` without a copy."""

    __slots__ = ("_buffer", "_filled_bytes", "_room", "command")

    def __init__(self, command: RemotingCommand, size_bytes: int, data: bytes | memoryview) -> None:
        self.command = command
        self._buffer = BytesIO(bytes(size_bytes))
        self._room = self._buffer.getbuffer()
        self._filled_bytes = len(data)
        self._room[: len(data)] = data

    def room(self) -> memoryview | None:
        end = len(self._room) - _TAIL_BYTES
        return self._room[self._filled_bytes : end] if self._filled_bytes < end else None

    def note_filled(self, size_bytes: int) -> None:
        self._filled_bytes += size_bytes

    @property
    def held_bytes(self) -> int:
        return self._filled_bytes

    @property
    def missing_bytes(self) -> int:
        return len(self._room) - self._filled_bytes

    def take(self, data: bytes | memoryview) -> int:
        """Copy what belongs to the body; how many bytes that was."""
        size = min(len(data), len(self._room) - self._filled_bytes)
        self._room[self._filled_bytes : self._filled_bytes + size] = data[:size]
        self._filled_bytes += size
        return size

    def finish(self) -> RemotingCommand | None:
        """The command, if its body is whole."""
        if self._filled_bytes < len(self._room):
            return None
        self._room.release()
        self.command.body = self._buffer.getvalue()
        return self.command


class FrameDecoder:
    """Turns the bytes of one connection into commands.

    `feed` takes bytes from anywhere. Whoever can receive into a buffer asks `room` first: most of a large body then
    arrives at its place and is never copied. `shapes` are those of its requests.
    """

    def __init__(
        self,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_header_bytes: int = MAX_HEADER_BYTES,
        shapes: ShapeMemory | None = None,
    ) -> None:
        self.judge: Callable[[RemotingCommand, int], None] | None = None
        """Sees the header and the length of each large frame before its body is received; raises to refuse it."""
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        self._held = bytearray()
        self._needed_bytes = _HEAD_BYTES
        self._frame_bytes = 0
        self._large: _LargeBody | None = None
        self._shapes = ShapeMemory() if shapes is None else shapes

    @property
    def held_bytes(self) -> int:
        """What has arrived of a frame that is not whole."""
        return len(self._held) if self._large is None else self._large.held_bytes

    @property
    def missing_bytes(self) -> int:
        """What has not arrived of it, as far as it says; 0 where there is none."""
        if self._large is not None:
            return self._large.missing_bytes
        return max(self._frame_bytes, _HEAD_BYTES) - len(self._held) if self._held else 0

    def room(self) -> memoryview | None:
        """Where the next bytes of the stream may be put; None where they are for `feed`. Never empty."""
        return None if self._large is None else self._large.room()

    def note_filled(self, size_bytes: int) -> None:
        """So many bytes stand at the beginning of the last `room`. No command is whole without a `feed`."""
        assert self._large is not None, "there is no room to fill"
        self._large.note_filled(size_bytes)

    def feed(self, data: bytes | memoryview) -> Iterator[RemotingCommand]:
        """Each command that `data` completes, in order; consume it wholly before feeding again.

        Keeps nothing of `data` itself. Raises PROTOCOL_VIOLATION, after the good frames before it, for lengths out of
        bounds and unreadable headers; the stream has no next frame then. A request whose header is too long comes with
        its refusal in place of what it says.
        """
        return as_commands(self.feed_runs(data))

    def feed_runs(self, data: bytes | memoryview) -> Iterator[RemotingCommand | ShapedRun]:
        """The same, with those that are alike as runs."""
        if self._large is not None:
            taken = self._large.take(data)
            finished = self._large.finish()
            if finished is None:
                return
            self._large = None
            yield finished
            data = data[taken:]
        if self._held:
            self._held += data
            if len(self._held) < self._needed_bytes:
                return
            data = bytes(self._held)
            self._held.clear()
        position, available = 0, len(data)
        self._needed_bytes, max_header_bytes = _HEAD_BYTES, self._max_header_bytes
        self._frame_bytes = 0
        if available <= _COPIED_BYTES:
            data = bytes(data)
            found: list[RemotingCommand | ShapedRun] = []
            try:
                position = self._read_ordinary(data, found)
            except ConnectionFailed:
                yield from found
                raise
            yield from found
        while available - position >= _HEAD_BYTES:
            total, header_type, high, low = FRAME_HEAD.unpack_from(data, position)
            header_bytes = high << 16 | low
            if total > self._max_frame_bytes or header_bytes > total - _LENGTH_WORD_BYTES:
                self._refuse(total, header_bytes)
            end = position + _LENGTH_WORD_BYTES + total
            body_start = position + _HEAD_BYTES + header_bytes
            if end > available:
                if self._begin(memoryview(data)[position:], total, body_start - position):
                    return
                break
            header, body = bytes(data[position + _HEAD_BYTES : body_start]), bytes(data[body_start:end])
            is_plain = header_type == _JSON and header_bytes <= max_header_bytes
            command = decode_json(header, body) if is_plain else self._decode(header_type, header)
            command.body = body
            position = end
            yield command
        if position < available:
            self._held += data[position:]

    def _read_ordinary(self, data: bytes, found: list[RemotingCommand | ShapedRun]) -> int:
        """Read whole frames with JSON headers up to the first other one; where that begins."""
        position, available = 0, len(data)
        shapes, run = self._shapes, None
        max_frame_bytes, max_header_bytes = self._max_frame_bytes, self._max_header_bytes
        while available - position >= _HEAD_BYTES:
            total = data[position] << 8 | data[position + 1]
            total = (total << 8 | data[position + 2]) << 8 | data[position + 3]
            header_bytes = (data[position + 5] << 8 | data[position + 6]) << 8 | data[position + 7]
            end = position + _LENGTH_WORD_BYTES + total
            if end > available or total > max_frame_bytes or header_bytes > total - _LENGTH_WORD_BYTES:
                break
            if data[position + 4] != _JSON or header_bytes > max_header_bytes:
                break
            start = position + _HEAD_BYTES
            body_start = start + header_bytes
            request = shapes.read(data, start, body_start, end)
            if request is None:
                run = None
                found.append(shapes.decode(data, start, body_start, end))
            else:
                shape = shapes.last
                assert shape is not None
                if run is None or run.shape is not shape:
                    run = ShapedRun(shape)
                    found.append(run)
                run.requests.append(request)
            position = end
        return position

    def _decode(self, header_type: int, header: bytes) -> RemotingCommand:
        if len(header) > self._max_header_bytes:
            return decode_too_long(header_type, header, self._max_header_bytes)
        return decode_header(header_type, header)

    def _begin(self, data: bytes | memoryview, total: int, header_end: int) -> bool:
        """Whether the body of this frame, which is not whole, is received at its own place from now on."""
        self._frame_bytes = _LENGTH_WORD_BYTES + total
        if self.judge is not None and header_end > _HEAD_BYTES + MAX_JUDGED_HEADER_BYTES:
            # It would be held whole before it could be judged.
            self._refuse(total, header_end - _HEAD_BYTES)
        body_bytes = self._frame_bytes - header_end
        if body_bytes < _LARGE_BODY_BYTES:
            self._needed_bytes = self._frame_bytes
            return False
        if len(data) < header_end:
            self._needed_bytes = header_end
            return False
        self._needed_bytes = total // _ROOM_FACTOR
        has_come = len(data) >= self._needed_bytes
        if has_come or self.judge is not None:
            command = self._decode(data[_LENGTH_WORD_BYTES], bytes(data[_HEAD_BYTES:header_end]))
            if self.judge is not None:
                self.judge(command, total)
            if has_come:
                self._large = _LargeBody(command, body_bytes, data[header_end:])
        return has_come

    def _refuse(self, total: int, header_bytes: int) -> NoReturn:
        if not _LENGTH_WORD_BYTES <= total <= self._max_frame_bytes:
            raise protocol_violation(f"A frame claims {total} bytes; the limit is {self._max_frame_bytes}.")
        raise protocol_violation(f"A frame of {total} bytes claims a header of {header_bytes} bytes.")


def encode_frame(command: RemotingCommand) -> list[bytes | memoryview]:
    """The frame as buffers to be written one after another; ValueError where it is over `MAX_FRAME_BYTES`."""
    header = encode_header(command)
    size = len(header) + len(command.body)
    parts = command.body_parts
    if parts:
        size += sum(map(len, parts))
    total = _LENGTH_WORD_BYTES + size
    if total > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {total} bytes is over the limit of {MAX_FRAME_BYTES}")
    head = FRAME_HEAD.pack(total, command.header_type, len(header) >> 16, len(header) & 0xFFFF) + header
    return [head, command.body, *parts] if size > len(header) else [head]


def written_parts(buffers: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The same bytes in as few writes as is cheap: small neighbours joined, large ones as they are, not copied."""
    if sum(map(len, buffers)) <= MAX_JOINED_BYTES:
        return [b"".join(buffers)]
    parts: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for buffer in buffers:
        if len(buffer) <= MAX_JOINED_BYTES:
            small.append(buffer)
            continue
        if small:
            parts.append(b"".join(small))
            small = []
        # A view, because a transport that sends a part of it cuts off the rest.
        parts.append(memoryview(buffer))
    if small:
        parts.append(b"".join(small))
    return parts
