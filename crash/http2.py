"""Just enough of HTTP/2 to say anything to a gRPC server: whole requests, half ones and nonsense."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress

__all__ = ["PREFACE", "Http2Connection", "frame", "grpc_message", "headers_block", "request_headers"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
_FIRST_WINDOW_BYTES = 65_535
_INITIAL_WINDOW_SIZE = 4
_FRAME_BYTES = 16_384

Headers = Iterable[tuple[bytes, bytes]]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def headers_block(headers: Headers) -> bytes:
    """Headers in plain text: literals that enter no table."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)


def request_headers(path: str, *more: tuple[bytes, bytes], timeout: bytes = b"1S") -> list[tuple[bytes, bytes]]:
    """The headers of a gRPC call."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"grpc-timeout", timeout),
        *more,
    ]


def grpc_message(body: bytes, *, flags: int = 0, length: int | None = None) -> bytes:
    """A message as it stands in the data of a call; `length` may lie."""
    return struct.pack(">BI", flags, len(body) if length is None else length) + body


def _text(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes((len(text),)) + text
    rest, encoded = len(text) - 127, bytearray(b"\x7f")
    while rest >= 128:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded) + text


class Http2Connection:
    """One connection. `ended` are the streams that the server has answered or reset.

    One that does not read leaves the server's answers where they are.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, reads: bool = True) -> None:
        self.writer = writer
        self.ended: set[int] = set()
        self.resets = 0
        self.is_closed = False
        self.received_bytes = 0
        self._reader = reader
        self._moved = asyncio.Event()
        self._windows = {0: _FIRST_WINDOW_BYTES}
        self._first_window_bytes = _FIRST_WINDOW_BYTES
        writer.write(PREFACE + frame(SETTINGS, 0, 0, b""))
        self._task = asyncio.create_task(self._read_all()) if reads else None

    @classmethod
    async def open(cls, address: str, *, reads: bool = True) -> Http2Connection:
        """A connection after the preface."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)), reads=reads)

    def begin(self, stream: int, headers: Headers, *, end: bool = False) -> None:
        """Open a stream."""
        flags = END_HEADERS | (END_STREAM if end else 0)
        self.write(frame(HEADERS, flags, stream, headers_block(headers)))
        self._windows[stream] = self._first_window_bytes

    def write(self, raw: bytes) -> None:
        """Send any bytes; nothing if the connection is gone."""
        if not self.writer.is_closing():
            self.writer.write(raw)

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send data without regard to windows; for little of it."""
        self.write(frame(DATA, END_STREAM if end else 0, stream, data))
        self._windows[0] -= len(data)

    async def push(self, stream: int, data: bytes) -> int:
        """Send as much as the server takes; the bytes that it took before it ended the stream or the connection."""
        sent = 0
        while sent < len(data) and stream not in self.ended and not self.is_closed:
            room = min(self._windows[0], self._windows[stream], _FRAME_BYTES, len(data) - sent)
            if room <= 0:
                self._moved.clear()
                await self._moved.wait()
                continue
            self._windows[0] -= room
            self._windows[stream] -= room
            self.write(frame(DATA, 0, stream, data[sent : sent + room]))
            sent += room
            with suppress(ConnectionError):
                await self.writer.drain()
        return sent

    async def answered(self, streams: set[int], timeout_s: float) -> bool:
        """Whether the server ends these streams or the connection in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not (self.is_closed or streams <= self.ended):
                    self._moved.clear()
                    await self._moved.wait()
        return self.is_closed or streams <= self.ended

    async def close(self, *, reset: bool = False) -> None:
        """Close, or reset as a crash of the client does."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if reset and not self.writer.is_closing():
            linger = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.writer.transport.abort()
        else:
            self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def _read_all(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                self._take(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)
                self._moved.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.is_closed = True
            self._moved.set()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self.received_bytes += len(payload)
        if kind == RST_STREAM:
            self.resets += 1
            self.ended.add(stream)
        elif kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended.add(stream)
        elif kind == WINDOW_UPDATE:
            self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == PING and not flags & ACK:
            self.write(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY and int.from_bytes(payload[4:8], "big"):
            self.is_closed = True
        if kind == DATA and payload:
            self.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            name, value = struct.unpack(">HI", payload[at : at + 6])
            if name == _INITIAL_WINDOW_SIZE:
                for stream in self._windows.keys() - {0}:
                    self._windows[stream] += value - self._first_window_bytes
                self._first_window_bytes = value
        self.write(frame(SETTINGS, ACK, 0, b""))
