"""Frames: `int32 total | int32 (type << 24 | header length) | header | body`, total being what follows itself.

The decoder takes the stream in pieces of any size and never buffers more than one frame beyond the last piece.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from millstream.protocol.remoting.command import RemotingCommand, decode_header, encode_header, protocol_violation

__all__ = ["MAX_ANSWER_HEADER_BYTES", "MAX_FRAME_BYTES", "MAX_HEADER_BYTES", "FrameDecoder", "encode_frame"]

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a frame at most, as RocketMQ's default `frameMaxLength`."""

MAX_HEADER_BYTES: Final = 64 * 1024
"""Bytes of a request's header at most: twice the longest properties."""

MAX_ANSWER_HEADER_BYTES: Final = 4 * 1024 * 1024
"""Bytes of an answer's header at most: a batch's answer lists the id of each message."""

_HEAD = struct.Struct(">iBBH")
_HEAD_BYTES = _HEAD.size
_LENGTH_WORD_BYTES = 4


class FrameDecoder:
    """Turns the bytes of one connection into commands."""

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        self._held = bytearray()
        self._needed_bytes = _HEAD_BYTES

    def feed(self, data: bytes) -> Iterator[RemotingCommand]:
        """Each command that `data` completes, in order; consume it wholly before feeding again.

        Raises PROTOCOL_VIOLATION, after the good frames before it, for lengths out of bounds and unreadable headers;
        the stream has no next frame then.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._needed_bytes:
                return
            data = bytes(self._held)
            self._held.clear()
        position, available = 0, len(data)
        self._needed_bytes = _HEAD_BYTES
        while available - position >= _HEAD_BYTES:
            total, header_type, high, low = _HEAD.unpack_from(data, position)
            header_bytes = high << 16 | low
            self._check(total, header_bytes)
            end = position + _LENGTH_WORD_BYTES + total
            if end > available:
                self._needed_bytes = end - position
                break
            body_start = position + _HEAD_BYTES + header_bytes
            command = decode_header(header_type, data[position + _HEAD_BYTES : body_start])
            command.body = data[body_start:end]
            position = end
            yield command
        if position < available:
            self._held += data[position:]

    def _check(self, total: int, header_bytes: int) -> None:
        if not _LENGTH_WORD_BYTES <= total <= self._max_frame_bytes:
            raise protocol_violation(f"A frame claims {total} bytes; the limit is {self._max_frame_bytes}.")
        if header_bytes > min(self._max_header_bytes, total - _LENGTH_WORD_BYTES):
            raise protocol_violation(
                f"A frame of {total} bytes claims a header of {header_bytes} bytes; the limit is "
                f"{self._max_header_bytes}."
            )


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
    head = _HEAD.pack(total, command.header_type, len(header) >> 16, len(header) & 0xFFFF) + header
    return [head, command.body, *parts] if size > len(header) else [head]
