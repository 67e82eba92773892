"""The HTTP port as an ASGI application: dispatches requests by path and method.

This is the edge: what a resource raises becomes an answer, and unforeseen errors go to the log only.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from millstream.model.errors import MillstreamError, Refused
from millstream.proxy.http.answer import HttpAnswer, Receive, Send
from millstream.proxy.http.origins import add_fields, cors_fields, preflight_answer
from millstream.proxy.http.problems import internal_problem, problem_answer
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.service import HttpService
from millstream.security.web_origins import WebOrigins

__all__ = ["Handler", "HttpApplication", "Route"]

_log = logging.getLogger(__name__)

_COLLECTIONS: Final = frozenset(("topics", "groups", "messages", "subscriptions"))
"""Parts of a path behind which a name stands."""

_NAME: Final = "*"
_UNKNOWN: Final = "unknown"
_OVERLOAD: Final = "REQUESTS_OVER_BUDGET"
"""What clients bring about: the log of a server must not grow by it."""

_CLOSE: Final = (b"connection", b"close")

Handler = Callable[..., Awaitable[HttpAnswer | None]]
"""Takes a request and the names of its path; None where it has written its answer itself."""


@dataclass(frozen=True, slots=True)
class Route:
    """What answers a method of a path. `action` is its name in audit and metrics; `is_open` asks for no user."""

    action: str
    handler: Handler
    is_open: bool = False


class HttpApplication:
    """Answers requests by `routes`: path, with `*` for names, to method to what answers it.

    `origins` says which pages of browsers may use them.
    """

    def __init__(
        self, routes: Mapping[str, Mapping[str, Route]], service: HttpService, origins: WebOrigins | None = None
    ) -> None:
        self._origins = origins or WebOrigins()
        self._traffic = service.traffic
        self._routes = routes
        self._gate = service.gate
        self._clock = service.clock
        self._latency = service.latency

    @property
    def routes(self) -> Mapping[str, Mapping[str, Route]]:
        """What is answered: path, with `*` for names, to method to what answers it."""
        return self._routes

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        arrived_s = self._clock.monotonic_s()
        action, status, request = _UNKNOWN, HTTPStatus.OK, None
        answer: HttpAnswer | None
        try:
            request = HttpRequest.of(scope, receive, send)
            page = self._origins.admit(request.headers)
            if fields := cors_fields(page, request.headers):
                send = request.send = add_fields(send, fields)
            shape, names = _shape_of(scope["raw_path"].decode("ascii"))
            methods = self._routes.get(shape)
            if methods is None:
                raise Refused("HTTP_RESOURCE", f"There is nothing at {scope['raw_path'].decode('ascii')[:200]}.")
            route = methods.get("GET" if request.method == "HEAD" else request.method)
            if route is None:
                answer = _answer_by_itself(request, methods)
            else:
                action = route.action
                if not route.is_open:
                    self._gate.enter(request, action)
                answer = await route.handler(request, *names)
        except ConnectionError:
            return
        except MillstreamError as error:
            answer = problem_answer(error)
            if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and error.name != _OVERLOAD:
                _log.error("%s over HTTP failed: %s", action, error)
        except Exception as error:  # noqa: BLE001 - the edge of one request
            _log.error("%s over HTTP failed in an unforeseen way", action, exc_info=error)
            answer = internal_problem()
        if answer is not None:
            status = HTTPStatus(answer.status)
            self._traffic.refused += status >= HTTPStatus.BAD_REQUEST
            if request is None or not request.is_read:
                # What follows on the connection may be the rest of a body that nobody wants.
                if request is not None:
                    await request.discard()
                answer.headers = (*answer.headers, _CLOSE)
            await answer.write(send)
        self._latency.note(action, int(status), self._clock.monotonic_s() - arrived_s)


def _shape_of(path: str) -> tuple[str, list[str]]:
    """The path with `*` in the place of names, and the names."""
    shape, names, is_name = [], [], False
    for part in path.split("/"):
        if is_name and part:
            names.append(unquote(part) if "%" in part else part)
            shape.append(_NAME)
            is_name = False
        else:
            # A blank name is none.
            shape.append(part)
            is_name = part in _COLLECTIONS
    return "/".join(shape), names


def _answer_by_itself(request: HttpRequest, methods: Mapping[str, Route]) -> HttpAnswer:
    if request.method == "OPTIONS" and (answer := preflight_answer(request.headers, [*methods])) is not None:
        return answer
    allowed = ", ".join(methods)
    answer = problem_answer(Refused("HTTP_METHOD", f"{request.method[:20]} is not taken there; {allowed} is."))
    answer.headers = (*answer.headers, (b"allow", allowed.encode()))
    return answer
