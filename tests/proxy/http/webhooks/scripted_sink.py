"""A server that takes events as a script says, for tests of webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["PostedEvent", "ScriptedSink", "running_sink"]


@dataclass
class PostedEvent:
    """One POST that came: its headers in lower case, and its body."""

    headers: dict[str, str]
    body: bytes


@dataclass
class ScriptedSink:
    """Answers OPTIONS with `handshake`, and each POST with the next of `answers`, at last with 204."""

    port: int = 0
    handshake: str = "HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: *"
    answers: list[str] = field(default_factory=list)
    events: asyncio.Queue[PostedEvent] = field(default_factory=asyncio.Queue)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        answer = self.handshake
        if line.startswith("POST"):
            self.events.put_nowait(PostedEvent(headers, body))
            answer = self.answers.pop(0) if self.answers else "HTTP/1.1 204 No Content"
        writer.write(f"{answer}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async def next_event(self) -> PostedEvent:
        async with asyncio.timeout(60):
            return await self.events.get()


@asynccontextmanager
async def running_sink() -> AsyncIterator[ScriptedSink]:
    """A sink on a free port of this machine, until the block ends."""
    sink = ScriptedSink()
    server = await asyncio.start_server(sink.serve, "127.0.0.1", 0)
    sink.port = server.sockets[0].getsockname()[1]
    try:
        yield sink
    finally:
        server.close()
