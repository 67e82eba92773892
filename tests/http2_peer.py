"""A client of HTTP/2 that may say anything to a core: it makes frames by hand and reads what the core sends."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from millstream.protocol.http2.connection import Http2Core, Http2Limits
from millstream.protocol.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER_BYTES,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    frame_header,
)
from millstream.protocol.http2.hpack import Header, HeaderDecoder
from millstream.protocol.http2.stream import Http2Stream

__all__ = ["REQUEST", "RawPeer", "SentFrame", "frame", "read_frames"]

REQUEST: tuple[Header, ...] = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a.Service/Call"),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)

_WORD = struct.Struct("!I")


@dataclass(frozen=True)
class SentFrame:
    """One frame that the core sent."""

    kind: int
    flags: int
    stream: int
    content: bytes

    @property
    def word(self) -> int:
        """The first four bytes of the content."""
        return int(_WORD.unpack_from(self.content)[0])

    @property
    def ends(self) -> bool:
        return self.kind in (DATA, HEADERS) and bool(self.flags & END_STREAM)


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return frame_header(len(content), kind, flags, stream) + content


def read_frames(raw: bytes) -> list[SentFrame]:
    """The whole frames of bytes; AssertionError if they end within one."""
    found, at = [], 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 3], "big")
        stream = int.from_bytes(raw[at + 5 : at + 9], "big")
        start = at + FRAME_HEADER_BYTES
        assert start + length <= len(raw), "a frame is cut off"
        found.append(SentFrame(raw[at + 3], raw[at + 4], stream, raw[start : start + length]))
        at = start + length
    return found


def _plain(headers: tuple[Header, ...]) -> bytes:
    """Literals that enter no table, so that blocks can be cut and repeated at will."""
    block = bytearray()
    for name, value in headers:
        block.append(0)
        for text in (name, value):
            raw = text.encode("latin-1")
            assert len(raw) < 127
            block.append(len(raw))
            block += raw
    return bytes(block)


@dataclass
class RawPeer:
    """One connection. `heard` are the frames of the core so far; `now_s` is the time that it is told."""

    limits: Http2Limits = field(default_factory=Http2Limits)
    begins: bool = True
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.core = Http2Core(self.limits)
        self.heard: list[SentFrame] = []
        self.decoder = HeaderDecoder(max_list_bytes=1 << 20)
        self.next_stream = 1
        if self.begins:
            self.send(PREFACE + frame(SETTINGS, 0, 0))
            self.hear()
            self.heard.clear()

    def send(self, *raw: bytes) -> list[Http2Stream]:
        """The streams that have news by these bytes."""
        return self.core.receive(b"".join(raw), self.now_s)

    def hear(self) -> list[SentFrame]:
        """What the core has sent since the last look."""
        found = read_frames(b"".join(self.core.take_outgoing()))
        self.heard += found
        return found

    def headers(self, number: int, headers: tuple[Header, ...] = REQUEST, *, ends: bool = False) -> bytes:
        return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), number, _plain(headers))

    def block(self, headers: tuple[Header, ...] = REQUEST) -> bytes:
        return _plain(headers)

    def data(self, number: int, content: bytes = b"", *, ends: bool = False) -> bytes:
        return frame(DATA, END_STREAM if ends else 0, number, content)

    def padded_data(self, number: int, content: bytes, padding: int, *, ends: bool = False) -> bytes:
        flags = PADDED | (END_STREAM if ends else 0)
        return frame(DATA, flags, number, bytes((padding,)) + content + bytes(padding))

    def window(self, number: int, more: int) -> bytes:
        return frame(WINDOW_UPDATE, 0, number, _WORD.pack(more))

    def reset(self, number: int, code: int = ErrorCode.CANCEL) -> bytes:
        return frame(RST_STREAM, 0, number, _WORD.pack(code))

    def settings(self, *settings: tuple[int, int]) -> bytes:
        return frame(SETTINGS, 0, 0, b"".join(struct.pack("!HI", name, value) for name, value in settings))

    def ping(self, content: bytes = b"12345678", flags: int = 0) -> bytes:
        return frame(PING, flags, 0, content)

    def continuation(self, number: int, content: bytes, *, ends: bool = False) -> bytes:
        return frame(CONTINUATION, END_HEADERS if ends else 0, number, content)

    def open(self, *, ends: bool = False, headers: tuple[Header, ...] = REQUEST) -> Http2Stream:
        """A stream that the core has taken."""
        number, self.next_stream = self.next_stream, self.next_stream + 2
        self.send(self.headers(number, headers, ends=ends))
        return self.core.streams[number]

    def sent_data(self, number: int) -> bytes:
        """All data of the stream that was heard."""
        return b"".join(one.content for one in self.heard if one.kind == DATA and one.stream == number)

    def resets(self) -> list[tuple[int, int]]:
        """Streams that the core has reset, with the codes, of what was heard."""
        return [(one.stream, one.word) for one in self.heard if one.kind == RST_STREAM]

    def goaways(self) -> list[tuple[int, int]]:
        """The last stream and the code of each GOAWAY that was heard."""
        return [
            (one.word, int(_WORD.unpack_from(one.content, 4)[0])) for one in self.heard if one.kind == GOAWAY
        ]  # fmt: skip

    def acks(self) -> int:
        return sum(one.kind == SETTINGS and bool(one.flags & ACK) for one in self.heard)
