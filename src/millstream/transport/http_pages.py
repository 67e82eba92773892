"""A minimal HTTP server for metrics and health pages: GET and HEAD only.

Each connection asks once and is closed. What it asks for is one line; the rest of its head is read and not looked at.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from millstream.model.clock import SystemClock
from millstream.telemetry.processes import descriptor_limit
from millstream.transport.descriptor_budget import DescriptorBudget, reserved_descriptors
from millstream.transport.listening import listen_refused
from millstream.transport.strangers import StrangerLog
from millstream.transport.tls_sniffer import TlsSniffer

__all__ = ["MAX_HEAD_BYTES", "MAX_PAGE_CONNECTIONS", "READ_TIMEOUT_S", "HttpPages", "Page"]

_log = logging.getLogger(__name__)

MAX_PAGE_CONNECTIONS: Final = 64
"""Connections at the same time at most, of the descriptors that are kept from others' connections; the one that is
silent for longest gives way, or the next one is closed at once."""

MAX_HEAD_BYTES: Final = 16 * 1024
"""Bytes of a request's head at most."""

READ_TIMEOUT_S: Final = 5.0
"""Seconds that a client may take to send its request, and then to read its answer."""

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_PLAIN: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """One answer: its status, what it is and its text."""

    status: int
    content_type: str
    text: str


Maker = Callable[[], Awaitable[Page]]
"""Makes a page as of now. It is asked for one page at a time."""


class HttpPages:
    """Serves `pages` (by path, as in `/metrics`) on `host`:`port`; 0 takes a free port."""

    def __init__(self, pages: Mapping[str, Maker], host: str, port: int) -> None:
        self._pages = pages
        self._host = host
        self._port = port
        self._making = {path: asyncio.Lock() for path in pages}
        self._open: set[asyncio.StreamWriter] = set()
        self._doorway: TlsSniffer | None = None
        self.strangers = StrangerLog(SystemClock())
        """What they do wrong; set before `start` where ports share it."""

    async def start(self) -> int:
        """Listen; the port that was bound. Raises StartRefused: PORT_IN_USE, ADDRESS_NOT_LOCAL."""
        # Not of those for all connections: who looks whether the server is well is answered while it is attacked.
        descriptors = DescriptorBudget(min(MAX_PAGE_CONNECTIONS, reserved_descriptors(descriptor_limit()) // 4))
        self._doorway = doorway = TlsSniffer(
            partial(self._enter, descriptors), descriptors, self.strangers, first_byte_limit_s=READ_TIMEOUT_S
        )
        try:
            return await doorway.start(self._host, self._port)
        except OSError as error:
            raise listen_refused(self._host, self._port, error) from None

    async def close(self) -> None:
        """Stop listening and cut off who is there; nothing if it does not listen."""
        if self._doorway is None:
            return
        self._doorway.close()
        for writer in list(self._open):
            writer.close()
        self._doorway = None

    async def _enter(self, descriptors: DescriptorBudget, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection that came through the doorway; to TLS it says in plain words that this is no request."""
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader, partial(self._serve, descriptors))
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)

    async def _serve(
        self, descriptors: DescriptorBudget, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        descriptors.note()
        self._open.add(writer)
        try:
            method, page = await self._answer(reader)
            body = page.text.encode()
            head = (
                f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + (b"" if method == "HEAD" else body))
            async with asyncio.timeout(READ_TIMEOUT_S):
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # The client went, or takes nothing: there is nobody to tell.
        finally:
            self._open.discard(writer)
            descriptors.free()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, Page]:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "GET", Page(400, _PLAIN, f"The head of the request has more than {MAX_HEAD_BYTES} bytes.\n")
        words = head.partition(b"\r\n")[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", Page(400, _PLAIN, "This is no HTTP/1.1 request.\n")
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return method, Page(405, _PLAIN, f"{method[:20]} is not offered; use GET.\n")
        maker = self._pages.get(path)
        if maker is None:
            return method, Page(404, _PLAIN, f"There is no such page. There are: {', '.join(self._pages)}.\n")
        try:
            async with self._making[path]:
                return method, await maker()
        except Exception:  # noqa: BLE001 - the connection's edge: a page that cannot be made is told as such
            _log.exception("The page %s cannot be made.", path)
            return method, Page(500, _PLAIN, "The page cannot be made; see the server's log.\n")
