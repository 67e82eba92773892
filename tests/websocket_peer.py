"""The client side of a WebSocket for tests: frames as a client sends them, and a client that reads whole messages."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

from patience import within_patience

__all__ = ["Closed", "WebSocketPeer", "client_frame", "handshake"]

_KEY = "dGhlIHNhbXBsZSBub25jZQ=="
"""The example of RFC 6455, section 1.3."""

_MASK = bytes.fromhex("37fa213d")
"""That of section 5.7: always the same, so that the names of tests are."""


def client_frame(data: bytes, opcode: int = 1, *, final: bool = True) -> bytes:
    """A frame of a client."""
    size = len(data)
    head = bytes((final << 7 | opcode,))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 65_536:
        head += b"\xfe" + size.to_bytes(2, "big")
    else:
        head += b"\xff" + size.to_bytes(8, "big")
    mask = _MASK
    return head + mask + bytes(byte ^ mask[position % 4] for position, byte in enumerate(data))


def handshake(path: str, **headers: str) -> bytes:
    """The request that opens a WebSocket; `_` in the names of further headers stands for `-`, None leaves one out."""
    fields = {
        "host": "localhost",
        "upgrade": "websocket",
        "connection": "keep-alive, Upgrade",
        "sec-websocket-key": _KEY,
        "sec-websocket-version": "13",
    }
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()


class Closed(Exception):
    """The server has closed the WebSocket; the code is None where the connection ended without one."""

    def __init__(self, code: int | None, words: str) -> None:
        super().__init__(code, words)
        self.code = code
        self.words = words


class WebSocketPeer:
    """One WebSocket that is open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, path: str, *, tls: ssl.SSLContext | None = None, **headers: str) -> WebSocketPeer:
        """Open one; AssertionError with the answer where the server refuses."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(handshake(path, **headers))
        head = await within_patience(reader.readuntil(b"\r\n\r\n"))
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
        return cls(reader, writer)

    def send(self, value: Any) -> None:
        """Send a value as JSON, bytes as they are."""
        self.writer.write(client_frame(value if isinstance(value, bytes) else json.dumps(value).encode()))

    async def frame(self) -> tuple[int, bytes]:
        """Opcode and data of the next frame, which is a whole message."""
        first, second = await self.reader.readexactly(2)
        assert first & 0xF0 == 0x80
        size = second
        if size >= 126:
            size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
        return first & 0x0F, await self.reader.readexactly(size)

    async def receive(self) -> Any:
        """The next message; pings are answered. Raises Closed."""
        while True:
            try:
                opcode, data = await within_patience(self.frame())
            except (asyncio.IncompleteReadError, ConnectionError):
                raise Closed(None, "") from None
            if opcode == 8:
                raise Closed(int.from_bytes(data[:2], "big"), data[2:].decode())
            if opcode == 9:
                self.writer.write(client_frame(data, 10))
            elif opcode == 1:
                return json.loads(data)

    async def close(self) -> None:
        """Close in good order."""
        self.writer.write(client_frame(b"\x03\xe8", 8))
        try:
            while True:
                await self.receive()
        except Closed:
            self.drop()

    def drop(self) -> None:
        """Go without a word."""
        self.writer.close()
