"""One HTTP request: headers, query, and a body within limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, MessageRefused, Refused
from millstream.model.filter import FilterKind, MessageFilter
from millstream.model.message import Address
from millstream.model.moment import duration_ms
from millstream.model.sql_filter import parse_filter
from millstream.proxy.grpc.namespace import NAMESPACE_HEADER, NO_NAMESPACE, Namespace
from millstream.proxy.http.answer import Receive, Send
from millstream.transport.connection_memory import ConnectionMemory, HalfFrame
from millstream.transport.http_port import READ_AHEAD_BYTES, WEBSOCKET_EXTENSION
from millstream.transport.websocket_connection import WebSocketConnection

__all__ = [
    "BODY_LIMIT_S",
    "DISCARD_LIMIT_S",
    "MAX_DISCARDED_BYTES",
    "MAX_PARAMETERS",
    "MAX_REQUEST_BYTES",
    "HttpRequest",
    "QueryParameters",
]

MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a request's body at most: a message of 4 MiB fits as Base64."""

BODY_LIMIT_S: Final = 30.0
"""Seconds in which a body must have arrived, without the time in which it had to wait for memory."""

MAX_DISCARDED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a refused body that are read and thrown away, so that its sender gets to read the answer."""

DISCARD_LIMIT_S: Final = 2.0
"""Seconds for which that is done."""

MAX_PARAMETERS: Final = 140
"""Parameters of a query at most."""

_TAG, _SQL = FilterKind.TAG.value, FilterKind.SQL.value

_UNKNOWN_PEER: Final = Address("127.0.0.1", 0)
"""Stands for a client whose address the transport does not tell."""


@dataclass(slots=True)
class QueryParameters:
    """The parameters of a query; each is read once, and `finish` refuses those that nobody asked for."""

    left: dict[str, str]

    @classmethod
    def of(cls, text: bytes) -> QueryParameters:
        """The query of a URL. Raises HTTP_REQUEST."""
        if not text:
            return cls({})
        try:
            pairs = parse_qsl(
                text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
            )
        except ValueError as error:
            raise _refusal(f"The query cannot be read: {error}.") from None
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _refusal("The query names a parameter twice.")
        return cls(found)

    def text(self, name: str) -> str | None:
        """The parameter, or None."""
        return self.left.pop(name, None)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds. Raises HTTP_REQUEST."""
        text = self.left.pop(name, None)
        if text is None:
            return default
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
            raise _refusal(f"The parameter {name} is {text[:80]!r}, no whole number of {least} to {most}.")
        return int(text)

    def duration_ms(self, name: str, default_ms: int | None = None) -> int | None:
        """Milliseconds of a length of time such as 30s. Raises HTTP_REQUEST."""
        text = self.left.pop(name, None)
        if text is None:
            return default_ms
        try:
            return duration_ms(text)
        except ValueError as error:
            raise _refusal(f"The parameter {name}: {str(error)[:200]}.") from None

    def message_filter(self) -> MessageFilter:
        """What `filter` (tags) or `sql` asks for; all without them. Raises HTTP_REQUEST, ILLEGAL_FILTER."""
        by_tag, by_sql = self.text("filter"), self.text("sql")
        if by_tag is not None and by_sql is not None:
            raise _refusal("The query has filter and sql; one of them is enough.")
        return parse_filter(_TAG, by_tag or "*") if by_sql is None else parse_filter(_SQL, by_sql)

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """The parameters whose names begin so, without that."""
        found = [name for name in self.left if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.left.pop(name) for name in found}

    def finish(self) -> None:
        """Refuse (HTTP_REQUEST) what was not asked for."""
        if self.left:
            raise _refusal(f"The query has the unknown parameter {next(iter(self.left))[:80]!r}.")


def _refusal(words: str) -> Refused:
    return Refused("HTTP_REQUEST", words)


class BodyBounds(Protocol):
    """What half-received bodies may hold, and by which clock."""

    @property
    def memory(self) -> ConnectionMemory:
        """Of all connections."""
        ...

    @property
    def clock(self) -> Clock:
        """Of the process."""
        ...


WebSocketOpener = Callable[[Mapping[str, str]], WebSocketConnection]
"""Takes the header fields of a checked handshake; ConnectionError where the client is gone."""


@dataclass(slots=True)
class HttpRequest:
    """One request. `headers` are in lower case; of several of one name the last counts."""

    method: str
    headers: Mapping[str, str]
    query: QueryParameters
    peer: Address
    receive: Receive
    send: Send
    is_read: bool
    """Whether its whole body was read; True of one that has none."""
    user: str = ""
    """Who asks; blank where access control is off."""
    space: Namespace = NO_NAMESPACE
    """In which its names stand."""
    open_websocket: WebSocketOpener | None = None
    """Answers the handshake that the request is; None where it asks for no WebSocket."""

    @classmethod
    def of(cls, scope: Mapping[str, Any], receive: Receive, send: Send) -> HttpRequest:
        """The request of a scope of ASGI. Raises HTTP_REQUEST, ILLEGAL_NAMESPACE."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        client = scope["client"]
        peer = _UNKNOWN_PEER if client is None else _address(client[0], client[1])
        is_read = "content-length" not in headers and "transfer-encoding" not in headers
        request = cls(scope["method"], headers, QueryParameters.of(scope["query_string"]), peer, receive, send, is_read)
        if "extensions" in scope:
            request.open_websocket = scope["extensions"].get(WEBSOCKET_EXTENSION)
        if NAMESPACE_HEADER in headers:
            request.space = Namespace.of_name(headers[NAMESPACE_HEADER])
        return request

    @property
    def client_id(self) -> str:
        """By what limits know the client: its user and its host."""
        return f"http:{self.user}@{self.peer.host}"

    async def body(self, bounds: BodyBounds) -> bytes:
        """The whole body. Raises REQUEST_TOO_LARGE, REQUEST_TOO_SLOW, REQUESTS_OVER_BUDGET."""
        length = self.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > MAX_REQUEST_BYTES:
            raise _too_large(int(length))
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message["type"] != "http.request":
            raise _broken()
        if message.get("more_body", False):
            body = await _whole_body(self, body, int(length) if length.isdecimal() else 0, bounds)
        self.is_read = True
        return body

    async def discard(self) -> None:
        """Read what its sender still has to send, within bounds; one that waits to be told to go on sends nothing."""
        size_bytes = 0
        if "expect" in self.headers:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_LIMIT_S):
                while size_bytes < MAX_DISCARDED_BYTES:
                    message = await self.receive()
                    size_bytes += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return


async def _whole_body(request: HttpRequest, begin: bytes, length: int, bounds: BodyBounds) -> bytes:
    memory, clock = bounds.memory, bounds.clock
    parts, size_bytes = [begin], len(begin)
    may_go_on = asyncio.Event()
    refusal: list[ConnectionFailed] = []

    def give_up(error: ConnectionFailed) -> None:
        refusal.append(error)
        may_go_on.set()

    half = HalfFrame(may_go_on.set, give_up)
    is_first, is_over = True, False
    try:
        while not is_over:
            missing_bytes = max(length - size_bytes, 0)
            # What the port reads ahead is there as well.
            held_bytes = size_bytes + (min(missing_bytes, READ_AHEAD_BYTES) if length else READ_AHEAD_BYTES)
            may_go_on.clear()
            if not memory.frames.note_bytes(half, held_bytes, missing_bytes, clock.monotonic_s(), begins=is_first):
                await may_go_on.wait()
            if refusal:
                raise refusal[0]
            is_first = False
            message = await _next_part(request)
            parts.append(message.get("body", b""))
            size_bytes += len(parts[-1])
            is_over = not message.get("more_body", False)
            if size_bytes > MAX_REQUEST_BYTES:
                raise _too_large(size_bytes)
        return b"".join(parts)
    finally:
        memory.frames.end(half, clock.monotonic_s())
        # A refusal knows this call, which knows the refusal: the body would wait for the search for such circles.
        refusal.clear()
        parts.clear()


async def _next_part(request: HttpRequest) -> Any:
    try:
        async with asyncio.timeout(BODY_LIMIT_S):
            message = await request.receive()
    except TimeoutError:
        words = f"No part of the body arrived for {BODY_LIMIT_S:g} s."
        raise ConnectionFailed("REQUEST_TOO_SLOW", words) from None
    if message["type"] != "http.request":
        raise _broken()
    return message


def _broken() -> ConnectionError:
    return ConnectionAbortedError("the client went in the middle of its request")


def _too_large(size_bytes: int) -> MessageRefused:
    words = f"The body of the request has {size_bytes} bytes or more; the limit is {MAX_REQUEST_BYTES}."
    return MessageRefused("REQUEST_TOO_LARGE", words)


@lru_cache(maxsize=4096)
def _address(host: str, port: int) -> Address:
    # Records hold plain IP addresses: the zone of a link-local one is left out.
    try:
        return Address(str(ip_address(host.partition("%")[0])), port)
    except ValueError:
        return _UNKNOWN_PEER
