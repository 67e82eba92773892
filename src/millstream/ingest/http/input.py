"""HTTP posts as an input of a gateway: answered once the broker has acknowledged their events."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from millstream.ingest.http.posts import BadPost, batch_of, unpack_body
from millstream.ingest.rate_limited_log import RateLimitedLog
from millstream.ingest.topic_writer import InputStatistics, TopicWriter
from millstream.model.errors import MillstreamError
from millstream.model.message import Address
from millstream.security.tls import ServerIdentity, TlsFiles
from millstream.transport.asgi_server import AsgiServer

__all__ = ["DEFAULT_POST_BYTES", "MAX_CONNECTIONS", "RETRY_AFTER_S", "HttpInput", "HttpOptions"]

DEFAULT_POST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one post at most, packed and unpacked, unless another limit is set."""

MAX_CONNECTIONS: Final = 2000
"""Connections and waiting posts at the same time at most; others are answered 503."""

RETRY_AFTER_S: Final = 1
"""Seconds that Retry-After names if there is no room."""

ANSWER_S: Final = 30.0
"""Seconds that a post waits for the broker; then it is answered 503, and its events may still arrive."""

BODY_S: Final = 30.0
"""Seconds that a client may take to send its body."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Where to listen and what to ask of clients. With `token` they send it as Authorization: Bearer."""

    host: str = "127.0.0.1"
    port: int = 8088
    token: str | None = None
    tls_files: TlsFiles | None = None
    max_bytes: int = DEFAULT_POST_BYTES
    answer_s: float = ANSWER_S


class HttpInput:
    """Takes posts at / and /events until it is stopped; /health says whether events are taken."""

    name = "http"

    def __init__(
        self, options: HttpOptions, outlet: TopicWriter, tally: InputStatistics, say: Callable[[str], None]
    ) -> None:
        self.outlet = outlet
        self.tally = tally
        self._options = options
        self._complaints = RateLimitedLog(say)
        self._identity = ServerIdentity(options.tls_files) if options.tls_files is not None else None
        self._server: AsgiServer | None = None

    def application(self) -> Starlette:
        """The application, for any server of ASGI."""
        routes = [
            Route("/", self._post, methods=["POST"]),
            Route("/events", self._post, methods=["POST"]),
            Route("/health", self._health, methods=["GET"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _answer_error})

    async def start(self) -> Mapping[str, Address]:
        """Listen. Raises StartRefused."""
        self._server = AsgiServer(
            self.application(),
            identity=self._identity,
            max_connections=MAX_CONNECTIONS,
            stop_s=self._options.answer_s,
        )
        return {"http": await self._server.start(self._options.host, self._options.port)}

    async def wait(self) -> None:
        """Never return: there is always more to come."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Take no more posts. Those that wait are answered while the outlet sends what it holds."""
        if self._server is not None:
            self._server.stop()

    async def finish(self) -> None:
        """Wait for the last answers."""
        if self._server is not None:
            await self._server.wait()

    def reload_certificate(self) -> None:
        """Read the certificate again; the old one holds where it cannot be used."""
        if self._identity is not None:
            self._identity.reload()

    # inside

    async def _health(self, _request: Request) -> Response:
        if self.outlet.is_away or not self.outlet.has_room():
            return PlainTextResponse("events wait for the broker\n", 503)
        return PlainTextResponse("ok\n")

    async def _post(self, request: Request) -> Response:
        try:
            return await self._take(request)
        except BadPost as refused:
            if refused.status in (401, 413, 429):
                self.tally.turned_away += 1
            else:
                self.tally.malformed += 1
            return _problem(refused.status, str(refused))
        except ClientDisconnect:
            self.tally.broken += 1
            peer = request.client.host if request.client is not None else "a client"
            self._complaints.add("left", f"{peer} went in the middle of a post")
            return Response(status_code=400)

    async def _take(self, request: Request) -> Response:
        self._check_token(request)
        if not self.outlet.has_room():
            raise BadPost(429, "Too many bytes wait for the broker; try again.")
        body = await self._body(request)
        plain = unpack_body(body, request.headers.get("content-encoding", "").strip().lower(), self._options.max_bytes)
        peer = request.client.host if request.client is not None else ""
        event_batch = batch_of(request.headers, plain, peer)
        stored = self.outlet.offer(event_batch)
        if stored is None:
            raise BadPost(429, "Too many bytes wait for the broker; try again.")
        self.tally.taken += len(event_batch.bodies)
        self.tally.taken_bytes += len(plain)
        return await self._answer(stored, len(event_batch.bodies))

    async def _answer(self, stored: asyncio.Future[None], events: int) -> Response:
        try:
            async with asyncio.timeout(self._options.answer_s):
                await asyncio.shield(stored)
        except TimeoutError:
            return _problem(503, "The broker has not acknowledged the events in time; they may still arrive.")
        except MillstreamError as error:
            return _problem(400, f"The broker refused an event; others of the post are stored: {error}")
        except asyncio.CancelledError:
            if not stored.cancelled():
                raise
            return _problem(503, "The gateway stops, and the broker has not acknowledged the events.")
        return JSONResponse({"stored": events})

    def _check_token(self, request: Request) -> None:
        token = self._options.token
        if token is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            raise BadPost(401, "Send the gateway's token: Authorization: Bearer TOKEN.")

    async def _body(self, request: Request) -> bytes:
        limit = self._options.max_bytes
        length_text = request.headers.get("content-length", "0")
        if length_text.isdecimal() and int(length_text) > limit:
            raise BadPost(413, f"The post has {int(length_text):,} bytes; the limit is {limit:,}.")
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_S):
                async for part in request.stream():
                    size += len(part)
                    if size > limit:
                        raise BadPost(413, f"The post has more than {limit:,} bytes.")
                    parts.append(part)
        except TimeoutError:
            raise BadPost(408, f"The post did not arrive whole in {BODY_S:.0f} s.") from None
        return b"".join(parts)


def _problem(status: int, words: str) -> Response:
    headers = {}
    if status in (429, 503):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": words}, status, headers)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is no such page; post to / or /events.", 405: f"{request.method[:20]} is not offered here."}
    return JSONResponse({"error": words.get(error.status_code, error.detail)}, error.status_code, error.headers)
