"""The HTTP interface to jobs: JSON requests and responses, catalogue errors, and one HTML page."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from millstream.job_server.errors import JobServerError, NotLeading, words_of
from millstream.job_server.job_page import job_page
from millstream.job_server.job_record import MAX_TEXT_BYTES
from millstream.job_server.job_service import JobService
from millstream.job_server.openapi import openapi_document
from millstream.job_server.routes import ROUTES, JobRoute
from millstream.model.errors import ConnectionFailed, MillstreamError

__all__ = ["BODY_S", "DEFAULT_LOG_LINES", "MAX_BODY_BYTES", "MAX_CONNECTIONS", "SETTLE_S", "JobApi"]

_log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 200
"""Connections and waiting requests at the same time at most; others are answered 503."""

MAX_BODY_BYTES: Final = MAX_TEXT_BYTES
"""Bytes of a request's body at most: 1 MiB."""

BODY_S: Final = 30.0
"""Seconds that a client may take to send its body."""

SETTLE_S: Final = 5.0
"""Seconds that a request waits at most for a server that leads, as after a start; then it is answered 503."""

DEFAULT_LOG_LINES: Final = 100
"""Lines of a log that are answered where none are asked for."""

_POLL_S: Final = 0.05
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_STATUSES: Final = {
    "JOB_NOT_FOUND": 404,
    "JOB_EXISTS": 409,
    "JOB_STATE": 409,
    "CHECKPOINT_MISMATCH": 409,
    "JOB_LIMIT": 409,
    "SAVEPOINT_REFUSED": 409,
    "JOB_TOKEN": 401,
    "JOB_REQUEST": 400,
    "JOB_SERVER_NOT_LEADING": 503,
    "INTERNAL_ERROR": 500,
}
"""Statuses of refusals; 422 for what else is refused, 503 where a broker does not answer."""


class _TooLarge(JobServerError):
    def __init__(self) -> None:
        super().__init__("JOB_REQUEST", f"The body of the request has over {MAX_BODY_BYTES:,} bytes.", remedy="")


class JobApi:
    """Answers requests by `service`, which is set before the first one can be answered.

    With a `token` clients send it as Authorization: Bearer. Without one, and on a loopback `host`, requests must name a
    loopback address as their host: a page of the web that resolves to this machine is none of ours.
    """

    def __init__(self, token: str, host: str) -> None:
        self.service: JobService | None = None
        self._token = token
        self._checks_host = not token and host in _LOOPBACK

    def application(self) -> Starlette:
        """The application, for any server of ASGI."""
        routes = [Route(one.path, partial(self._answer, one), methods=[one.method]) for one in ROUTES]
        return Starlette(
            routes=[*routes, Route("/", self._page, methods=["GET"])],
            exception_handlers={HTTPException: _answer_unknown},
        )

    # inside

    async def _answer(self, route: JobRoute, request: Request) -> Response:
        return await self._guard(request, partial(self._operate, route))

    async def _page(self, request: Request) -> Response:
        async def make(_request: Request) -> Response:
            return HTMLResponse(job_page((await self._await_service()).jobs()))

        return await self._guard(request, make)

    async def _guard(self, request: Request, make: Callable[[Request], Awaitable[Response]]) -> Response:
        """The answer, or what stands for the error that it raises."""
        try:
            self._check(request)
            return await make(request)
        except NotLeading as elsewhere:
            if not elsewhere.leader:
                return _refusal(elsewhere, 503)
            query = f"?{request.url.query}" if request.url.query else ""
            answer = _refusal(elsewhere, 307)
            answer.headers["Location"] = f"{elsewhere.leader}{request.url.path}{query}"
            return answer
        except MillstreamError as error:
            return _refusal(error, _status_of(error))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - the connection's edge
            _log.exception("A request about jobs failed.")
            unexpected = MillstreamError("INTERNAL_ERROR", f"{type(error).__name__}: {error}.")
            return _refusal(unexpected, 500)

    async def _operate(self, route: JobRoute, request: Request) -> Response:
        if route.operation == "openapi":
            return JSONResponse(openapi_document())
        service, name = await self._await_service(), request.path_params.get("name", "")
        body: Any = None if route.body is None else await _read_body(request, route.body)
        match route.operation:
            case "submit":
                found = await service.submit(body)
            case "list":
                found = {"jobs": service.jobs()}
            case "describe":
                found = service.describe(name)
            case "logs":
                lines = _number(request, "lines", DEFAULT_LOG_LINES)
                found = {"lines": await asyncio.to_thread(service.logs, name, lines)}
            case "update":
                found = await service.update(name, body)
            case "savepoint":
                found = await service.write_savepoint(name, body)
            case action:
                found = await service.change(name, action)
        return Response(msgspec.json.encode(found), route.status, media_type="application/json")

    async def _await_service(self) -> JobService:
        """The service, once it is known which server leads; after `SETTLE_S` it says that none does."""
        until_s = asyncio.get_running_loop().time() + SETTLE_S
        while self.service is None or not self.service.has_leader:
            if asyncio.get_running_loop().time() >= until_s:
                raise NotLeading
            await asyncio.sleep(_POLL_S)
        return self.service

    def _check(self, request: Request) -> None:
        if self._token:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
                raise JobServerError("JOB_TOKEN", "The request has no token, or another one than the server's.")
        if self._checks_host:
            host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
            if host not in _LOOPBACK:
                raise JobServerError("JOB_REQUEST", f"The request is for the host {host[:100]!r}, not for this one.")


async def _read_body(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """The body as JSON. A form of a web page cannot send that type, so that no page can send jobs."""
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != "application/json":
        raise JobServerError(
            "JOB_REQUEST", "The body is not said to be JSON.", remedy="Send Content-Type: application/json."
        )
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise _TooLarge
                parts.append(part)
    except TimeoutError:
        raise JobServerError("JOB_REQUEST", f"The body did not arrive within {BODY_S:.0f} s.") from None
    try:
        return msgspec.json.decode(b"".join(parts) or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise JobServerError("JOB_REQUEST", f"The body cannot be read: {error}.") from None


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 9:
        raise JobServerError("JOB_REQUEST", f"{name}={text[:40]!r} is no whole number.")
    return int(text)


def _status_of(error: MillstreamError) -> int:
    if isinstance(error, _TooLarge):
        return 413
    if isinstance(error, ConnectionFailed):
        return 503
    return _STATUSES.get(error.name, 422)


def _refusal(error: MillstreamError, status: int) -> Response:
    message, remedy = words_of(error)
    told = {"code": error.name, "number": error.label, "message": message, "remedy": remedy}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "1"} if status == 503 else {}
    return JSONResponse(told, status, headers)


async def _answer_unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = "There is no such path." if error.status_code == 404 else f"{request.method[:20]} is not offered there."
    refused = JobServerError("JOB_REQUEST", words)
    answer = _refusal(refused, error.status_code)
    answer.headers.update(error.headers or {})
    return answer
