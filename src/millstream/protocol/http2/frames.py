"""HTTP/2 frames (RFC 9113, sections 4 and 6): kinds, flags, error codes, settings and encoding."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import Final

__all__ = [
    "ACK",
    "CONTINUATION",
    "DATA",
    "DEFAULT_FRAME_BYTES",
    "DEFAULT_WINDOW_BYTES",
    "END_HEADERS",
    "END_STREAM",
    "FRAME_HEADER",
    "FRAME_HEADER_BYTES",
    "GOAWAY",
    "HEADERS",
    "MAX_WINDOW_BYTES",
    "PADDED",
    "PING",
    "PREFACE",
    "PRIORITY",
    "PRIORITY_FLAG",
    "PUSH_PROMISE",
    "RST_STREAM",
    "SETTINGS",
    "WINDOW_UPDATE",
    "ErrorCode",
    "SettingId",
    "frame_header",
    "goaway_frame",
    "ping_frame",
    "reset_frame",
    "settings_frame",
    "window_frame",
]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (section 3.4)."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FLAG: Final = 0x20

FRAME_HEADER_BYTES: Final = 9
DEFAULT_FRAME_BYTES: Final = 16_384
"""Bytes of a frame's content at most, where a side says nothing else."""

DEFAULT_WINDOW_BYTES: Final = 65_535
MAX_WINDOW_BYTES: Final = 2**31 - 1

FRAME_HEADER: Final = Struct("!HBBBI")
"""Length (16 upper and 8 lower bits), kind, flags, stream; the upper bit of the stream means nothing."""

_WORD: Final = Struct("!I")
_SETTING: Final = Struct("!HI")


class ErrorCode(IntEnum):
    """Why a stream or a connection ends (RFC 9113, section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class SettingId(IntEnum):
    """Settings that a side may send (RFC 9113, section 6.5.2)."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


def frame_header(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The nine bytes before a frame's content of `length` bytes."""
    return FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def settings_frame(settings: Iterable[tuple[SettingId, int]]) -> bytes:
    """SETTINGS with these values."""
    content = b"".join([_SETTING.pack(name, value) for name, value in settings])
    return frame_header(len(content), SETTINGS, 0, 0) + content


def window_frame(stream_id: int, size_bytes: int) -> bytes:
    """WINDOW_UPDATE: so many more bytes may come on the stream, or on the connection (0)."""
    return FRAME_HEADER.pack(0, 4, WINDOW_UPDATE, 0, stream_id) + _WORD.pack(size_bytes)


def reset_frame(stream_id: int, code: int) -> bytes:
    """RST_STREAM."""
    return FRAME_HEADER.pack(0, 4, RST_STREAM, 0, stream_id) + _WORD.pack(code)


def ping_frame(content: bytes, flags: int = 0) -> bytes:
    """PING with eight bytes, or with ACK the answer to one."""
    return FRAME_HEADER.pack(0, 8, PING, flags, 0) + content


def goaway_frame(last_stream_id: int, code: int, words: str = "") -> bytes:
    """GOAWAY: streams above `last_stream_id` were not looked at."""
    content = _WORD.pack(last_stream_id) + _WORD.pack(code) + words.encode()
    return frame_header(len(content), GOAWAY, 0, 0) + content
