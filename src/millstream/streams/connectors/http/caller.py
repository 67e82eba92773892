"""Requests over kept connections to one of several servers, repeated while they are busy or away."""

from __future__ import annotations

import base64
import datetime
import email.utils
import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from millstream.model.backoff import Backoff
from millstream.model.errors import ConnectionFailed, TimedOut, Unreachable
from millstream.streams.errors import JobError

__all__ = ["MAX_ANSWER_BYTES", "MAX_WAIT_S", "Answer", "HttpCaller", "HttpServer", "Retries", "authorization"]

MAX_ANSWER_BYTES: Final = 128 * 1024 * 1024
"""Bytes of an answer's body that are read; a longer answer fails the job."""

MAX_WAIT_S: Final = 300.0
"""How long a request waits at most before it is sent again, whatever Retry-After says."""

_BACKOFF: Final = Backoff(1.0, MAX_WAIT_S)
_BUSY = frozenset((HTTPStatus.TOO_MANY_REQUESTS, 500, 502, 503, 504))
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class HttpServer:
    """Where requests go: addresses such as `https://host:port/prefix`; one that fails gives way to the next.

    `headers` go with every request. `ca_file` is what TLS verifies servers with, blank: what the machine trusts.
    """

    addresses: tuple[str, ...]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 30.0
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent again."""

    count: int = 5
    """Attempts behind the first one, at most."""
    backoff: Backoff = _BACKOFF
    """The waits between attempts, where the server says none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the request was taken."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_busy(self) -> bool:
        """Whether the same request may be taken a little later."""
        return self.status in _BUSY

    @property
    def beginning(self) -> str:
        """The first characters of the body, on one line."""
        text = " ".join(self.body[: 4 * _SHOWN_CHARACTERS].decode(errors="replace").split())
        return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class HttpCaller:
    """Sends requests, one at a time. Not for several threads."""

    def __init__(
        self,
        server: HttpServer,
        retries: Retries,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._retries = retries
        self._sleep = sleep
        self._now = now
        self._place = 0
        self._connection: http.client.HTTPConnection | None = None

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        repeats: bool = True,
    ) -> Answer:
        """The answer to a request, which is sent again while the server is busy or away, unless not `repeats`.

        `path` stands behind the address. Raises Unreachable or TimedOut where no server answered at last.
        """
        attempt = 0
        while True:
            last = attempt >= self._retries.count or not repeats
            try:
                answer = self._once(method, path, body, headers or {})
            except ConnectionFailed:
                self._leave()
                if last:
                    raise
                self._sleep(self._retries.backoff.wait_s(attempt))
            else:
                if last or not answer.is_busy:
                    return answer
                self._sleep(self._wait_s(answer, attempt))
            attempt += 1

    def pause(self, attempt: int) -> None:
        """Wait as long as before the request behind that attempt."""
        self._sleep(self._retries.backoff.wait_s(attempt))

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One attempt; a kept connection that the server has closed meanwhile is opened again, which counts as none."""
        address = self._server.addresses[self._place]
        kept = self._connection is not None
        try:
            return self._sent(address, method, path, body, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self.close()
            if not kept:
                raise Unreachable(f"{_shown(address)} closed the connection without an answer: {error}.") from None
        except TimeoutError:
            raise TimedOut(f"{_shown(address)} did not answer within {self._server.timeout_s:g} s.") from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{_shown(address)} cannot be asked: {error or type(error).__name__}.") from None
        try:
            return self._sent(address, method, path, body, headers)
        except TimeoutError:
            raise TimedOut(f"{_shown(address)} did not answer within {self._server.timeout_s:g} s.") from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{_shown(address)} cannot be asked: {error or type(error).__name__}.") from None

    def _sent(self, address: str, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(address)
        if self._connection is None:
            self._connection = self._opened(parts.scheme, parts.hostname or "", parts.port)
        target = parts.path.rstrip("/") + path if path else parts.path or "/"
        target = f"{target}?{parts.query}" if parts.query else target
        self._connection.request(method, target, body or None, {**self._server.headers, **headers})
        response = self._connection.getresponse()
        content = response.read(MAX_ANSWER_BYTES + 1)
        if len(content) > MAX_ANSWER_BYTES:
            self.close()
            raise JobError("JOB_FAILED", f"{_shown(address)} answers with more than {MAX_ANSWER_BYTES:,} bytes.")
        if response.will_close:
            self.close()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def _opened(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        timeout_s = self._server.timeout_s
        if scheme.lower() != "https":
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._server.ca_file or None)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)

    def _leave(self) -> None:
        self.close()
        self._place = (self._place + 1) % len(self._server.addresses)

    def _wait_s(self, answer: Answer, attempt: int) -> float:
        """What Retry-After says, in seconds or as a date, else the usual."""
        said = answer.headers.get("retry-after", "").strip()
        if said.isdigit():
            return min(float(said), MAX_WAIT_S)
        try:
            moment = email.utils.parsedate_to_datetime(said)
        except ValueError:
            return self._retries.backoff.wait_s(attempt)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return min(max(moment.timestamp() - self._now(), 0.0), MAX_WAIT_S)


def authorization(username: str, password: str) -> str:
    """The header's value for a name and its password."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _shown(address: str) -> str:
    """The address without a query, which may hold a secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{'' if parts.port is None else f':{parts.port}'}"
