"""An HTTP response, and how ASGI sends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import orjson

__all__ = ["JSON_TYPE", "HttpAnswer", "Receive", "Send", "json_answer"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

JSON_TYPE: Final = b"application/json"


@dataclass(slots=True)
class HttpAnswer:
    """A whole answer: status, body and its content type, and further headers in lower case."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON_TYPE
    headers: Sequence[tuple[bytes, bytes]] = field(default_factory=tuple)

    async def write(self, send: Send) -> None:
        """Write it. It may still lie in the buffer of the connection afterwards."""
        headers = [*self.headers]
        if self.status != HTTPStatus.NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(self.body)))
        if self.body:
            headers.append((b"content-type", self.content_type))
        await send({"type": "http.response.start", "status": int(self.status), "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

    async def write_through(self, send: Send) -> None:
        """Write it, and return once the buffer of the connection has room again. The body is not kept beside that."""
        body, self.body = self.body, b""
        headers = [*self.headers, (b"content-length", b"%d" % len(body)), (b"content-type", self.content_type)]
        await send({"type": "http.response.start", "status": int(self.status), "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        del body
        await send({"type": "http.response.body", "body": b""})


def json_answer(value: Any, status: int = HTTPStatus.OK, headers: Sequence[tuple[bytes, bytes]] = ()) -> HttpAnswer:
    """The answer with a value as JSON."""
    return HttpAnswer(status, orjson.dumps(value), JSON_TYPE, headers)
