"""An HTTP client for user-given URLs: one connection per call, allowed addresses only, no redirects."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httptools

from millstream.model.errors import ConnectionFailed, Refused, TimedOut, Unreachable
from millstream.security.outbound import OutboundRule
from millstream.security.tls import SYSTEM_ROOTS, client_context

__all__ = ["CALL_LIMIT_S", "MAX_CALLS", "MAX_REPLY_BYTES", "HttpReply", "OutboundCaller"]

CALL_LIMIT_S: Final = 30.0
"""Seconds in which a server must have answered."""

MAX_CALLS: Final = 256
"""Calls of one caller under way at most; further ones wait."""

MAX_REPLY_BYTES: Final = 64 * 1024
"""Bytes of an answer's head at most; its body is not read."""

_PORTS: Final = {"http": 80, "https": 443}
_READ_BYTES: Final = 16 * 1024


@dataclass(slots=True)
class HttpReply:
    """What a server answered; the names of `headers` are in lower case."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)


class OutboundCaller:
    """Calls addresses that `rule` allows."""

    def __init__(self, rule: OutboundRule) -> None:
        self._rule = rule
        self._room = asyncio.Semaphore(MAX_CALLS)
        self._context: ssl.SSLContext | None = None

    async def call(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]],
        body: bytes = b"",
        *,
        limit_s: float = CALL_LIMIT_S,
    ) -> HttpReply:
        """The status and the headers of the answer. Raises Unreachable, TimedOut, PROTOCOL_VIOLATION; SINK_REFUSED for
        an address that may not be called."""
        async with self._room:
            try:
                async with asyncio.timeout(limit_s):
                    return await self._call(method, url, headers, body)
            except TimeoutError:
                raise TimedOut(f"{_host(url)} did not answer in {limit_s:g} s.") from None
            except (OSError, ssl.SSLError) as error:
                raise Unreachable(f"{_host(url)} cannot be called: {error}.") from None

    async def _call(self, method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> HttpReply:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        address = await self._address(host, port)
        is_tls = parts.scheme == "https"
        if is_tls and self._context is None:
            self._context = client_context(SYSTEM_ROOTS)
        reader, writer = await asyncio.open_connection(
            address, port, ssl=self._context if is_tls else None, server_hostname=host if is_tls else None
        )
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            lines = [f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in headers]
            lines.append(f"Content-Length: {len(body)}")
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)
            await writer.drain()
            return await _read_reply(reader, host)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _address(self, host: str, port: int) -> str:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=0, proto=6)
        for _, _, _, _, address in found:
            if self._rule.allows(str(address[0])):
                return str(address[0])
        raise Refused("SINK_REFUSED", f"{host[:80]!r} has no address that may be called.")


class _Reply:
    """Takes what httptools finds in an answer."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.is_complete = True


async def _read_reply(reader: asyncio.StreamReader, host: str) -> HttpReply:
    found = _Reply()
    parser = httptools.HttpResponseParser(found)
    size_bytes = 0
    while not found.is_complete:
        data = await reader.read(_READ_BYTES)
        size_bytes += len(data)
        if not data or size_bytes > MAX_REPLY_BYTES:
            raise ConnectionFailed("PROTOCOL_VIOLATION", f"{host[:80]!r} did not send the whole head of an answer.")
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not found.is_complete:
                raise ConnectionFailed(
                    "PROTOCOL_VIOLATION", f"{host[:80]!r} does not speak HTTP/1.1: {error}."
                ) from None
    return HttpReply(parser.get_status_code(), found.headers)


def _host(url: str) -> str:
    return repr((urlsplit(url).hostname or "")[:80])
