"""The port of the gateway: HTTP and HTTPS in front of `GatewayApi`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.gateway.api import MAX_BODY_BYTES, GatewayApi, Reply
from millstream.security.guard import Guard
from millstream.security.tls import ServerIdentity
from millstream.transport.asgi_server import AsgiServer

__all__ = ["ANSWER_WAIT_S", "BODY_S", "MAX_CONNECTIONS", "MAX_REQUESTS_AT_ONCE", "HttpPort"]

MAX_CONNECTIONS: Final = 500
"""Connections and waiting requests at the same time at most; others are answered 503."""

MAX_REQUESTS_AT_ONCE: Final = 32
"""Requests that are answered at the same time; others wait."""

BODY_S: Final = 30.0
"""Seconds that a client may take to send its body."""

ANSWER_WAIT_S: Final = 0.2
"""Seconds that a request for rows waits for the first of them."""

_LOOK_S: Final = 0.02
_STOP_S: Final = 1.0
_METHODS: Final = ["GET", "POST", "DELETE", "PUT", "PATCH"]

_log = logging.getLogger(__name__)


class HttpPort:
    """Serves the API on `host`:`port`, 0 takes a free one. With `guard` its super users log in: HTTP's Basic."""

    def __init__(
        self,
        api: GatewayApi,
        host: str,
        port: int,
        *,
        guard: Guard | None = None,
        identity: ServerIdentity | None = None,
    ) -> None:
        self._api = api
        self._host = host
        self._port = port
        self._guard = guard
        self._identity = identity
        self._threads = ThreadPoolExecutor(MAX_REQUESTS_AT_ONCE, thread_name_prefix="sql-gateway-http")
        self._server: AsgiServer | None = None

    def application(self) -> Starlette:
        """The application, for any server of ASGI."""
        return Starlette(routes=[Route("/{path:path}", self._serve, methods=_METHODS)])

    async def start(self) -> int:
        """Listen; the port that was bound. Raises StartRefused."""
        server = AsgiServer(
            self.application(), identity=self._identity, max_connections=MAX_CONNECTIONS, stop_s=_STOP_S
        )
        bound = await server.start(self._host, self._port)
        self._server = server
        return bound.port

    async def close(self) -> None:
        """Stop listening, and answer what is under way."""
        if self._server is not None:
            self._server.stop()
            await self._server.wait()
        self._threads.shutdown(wait=False)

    async def _serve(self, request: Request) -> Response:
        try:
            return _response(await self._answer(request))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:  # noqa: BLE001 - the connection's edge
            _log.exception("A request to %s cannot be answered.", request.url.path)
            return _response(Reply(500, {"errors": ["The request cannot be answered; see the gateway's log."]}))

    async def _answer(self, request: Request) -> Reply:
        if "origin" in request.headers:
            # Pages of other sites make browsers of this machine send requests; programs send no Origin.
            return Reply(403, {"errors": ["The SQL gateway does not answer pages of browsers."]})
        refused = self._check_login(request)
        if refused is not None:
            return refused
        body = await _read_body(request)
        if isinstance(body, Reply):
            return body
        answer = partial(self._api.answer, request.method, request.url.path, dict(request.query_params), body)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ANSWER_WAIT_S
        while True:
            reply = await loop.run_in_executor(self._threads, answer)
            if not reply.may_wait or loop.time() >= deadline_s:
                return reply
            await asyncio.sleep(_LOOK_S)

    def _check_login(self, request: Request) -> Reply | None:
        if self._guard is None:
            return None
        name, secret = _credentials(request.headers.get("authorization", ""))
        user = self._guard.book.find(name)
        expected = "" if user is None else user.secret
        # Compared for unknown names too, so that the time of the answer does not tell which names exist.
        is_equal = hmac.compare_digest(secret.encode(), expected.encode())
        if user is not None and is_equal and self._guard.is_super(name):
            return None
        peer = request.client.host if request.client is not None else ""
        self._guard.audit.note_refusal(
            peer=peer, user=name, action="sql-gateway", resource="", reason="no super user with that secret"
        )
        return Reply(401, {"errors": ["Log in as a super user of the gateway: Authorization: Basic."]})


async def _read_body(request: Request) -> bytes | Reply:
    too_large = Reply(413, {"errors": [f"The body has more than {MAX_BODY_BYTES:,} bytes."]})
    length_text = request.headers.get("content-length", "0")
    if length_text.isdecimal() and int(length_text) > MAX_BODY_BYTES:
        return too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY_BYTES:
                    return too_large
                parts.append(part)
    except TimeoutError:
        return Reply(408, {"errors": [f"The body did not arrive whole in {BODY_S:.0f} s."]})
    return b"".join(parts)


def _credentials(authorization: str) -> tuple[str, str]:
    """The name and the secret of HTTP's Basic; blanks where there are none."""
    scheme, _, told = authorization.partition(" ")
    try:
        text = base64.b64decode(told.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    name, _, secret = text.partition(":")
    return name, secret


def _response(reply: Reply) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="SQL gateway"'} if reply.status == 401 else {}
    body = msgspec.json.encode(reply.document)
    return Response(body, reply.status, headers, media_type="application/json; charset=UTF-8")
