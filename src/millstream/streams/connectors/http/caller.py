"""HTTP requests over kept connections to several servers, retried while they are busy or down."""

from __future__ import annotations

import base64
import datetime
import email.utils
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import RemoteDisconnected
from typing import Final
from urllib.parse import urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError
from urllib3.exceptions import TimeoutError as RequestTimeout
from urllib3.util import SKIP_HEADER

from millstream.model.backoff import Backoff
from millstream.model.errors import ConnectionFailed, TimedOut, Unreachable
from millstream.streams.errors import JobError

__all__ = ["MAX_ANSWER_BYTES", "MAX_WAIT_S", "Answer", "CallRetries", "HttpCaller", "HttpServer", "authorization"]

MAX_ANSWER_BYTES: Final = 128 * 1024 * 1024
"""Bytes of an answer's body that are read; a longer answer fails the job."""

MAX_WAIT_S: Final = 300.0
"""How long a request waits at most before it is sent again, whatever Retry-After says."""

_BACKOFF: Final = Backoff(1.0, MAX_WAIT_S)
_BUSY = frozenset((HTTPStatus.TOO_MANY_REQUESTS, 500, 502, 503, 504))
_CLOSED = (RemoteDisconnected, ConnectionResetError, BrokenPipeError)
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
class CallRetries:
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
        retries: CallRetries,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._retries = retries
        self._sleep = sleep
        self._now = now
        self._place = 0
        self._pool: HTTPConnectionPool | None = None
        self._is_kept = False
        """Whether an answer came over the pool's connection, which may be closed by now."""

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
        pool, self._pool, self._is_kept = self._pool, None, False
        if pool is not None:
            pool.close()

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One attempt; what a connection that the server closed since its last answer took is sent again, once."""
        address = self._server.addresses[self._place]
        try:
            try:
                return self._send(address, method, path, body, headers)
            except ProtocolError as error:
                if not self._is_kept or not isinstance(_cause(error), _CLOSED):
                    raise
                self.close()
                return self._send(address, method, path, body, headers)
        except (HTTPError, OSError) as error:
            raise self._failure(address, error) from None

    def _send(self, address: str, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(address)
        if self._pool is None:
            self._pool = self._open(parts.scheme, parts.hostname or "", parts.port)
        target = parts.path.rstrip("/") + path if path else parts.path or "/"
        response = self._pool.urlopen(
            method,
            f"{target}?{parts.query}" if parts.query else target,
            body or None,
            {"User-Agent": SKIP_HEADER, **self._server.headers, **headers},
            retries=False,
            preload_content=False,
        )
        content = response.read(MAX_ANSWER_BYTES + 1, decode_content=False)
        if len(content) > MAX_ANSWER_BYTES:
            response.close()
            self.close()
            raise JobError(
                "JOB_FAILED", f"{_without_query(address)} answers with more than {MAX_ANSWER_BYTES:,} bytes."
            )
        if response.length_remaining:
            raise ProtocolError(f"the answer breaks off {response.length_remaining:,} bytes before its end")
        response.release_conn()
        self._is_kept = True
        return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, content)

    def _open(self, scheme: str, host: str, port: int | None) -> HTTPConnectionPool:
        timeout_s = self._server.timeout_s
        if scheme.lower() != "https":
            return HTTPConnectionPool(host, port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._server.ca_file or None)
        return HTTPSConnectionPool(host, port, timeout=timeout_s, ssl_context=context)

    def _failure(self, address: str, error: Exception) -> ConnectionFailed:
        shown, cause = _without_query(address), _cause(error)
        # To urllib3 a refused connection is a timeout, too.
        is_late = isinstance(error, RequestTimeout) and not isinstance(error, NewConnectionError)
        if is_late or isinstance(cause, TimeoutError):
            return TimedOut(f"{shown} did not answer within {self._server.timeout_s:g} s.")
        if isinstance(cause, _CLOSED):
            return Unreachable(f"{shown} closed the connection without an answer: {cause}.")
        return Unreachable(f"{shown} cannot be asked: {str(cause) or type(cause).__name__}.")

    def _leave(self) -> None:
        self.close()
        self._place = (self._place + 1) % len(self._server.addresses)

    def _wait_s(self, answer: Answer, attempt: int) -> float:
        """What Retry-After says, in seconds or as a date, else the usual."""
        retry_after = answer.headers.get("retry-after", "").strip()
        if retry_after.isdigit():
            return min(float(retry_after), MAX_WAIT_S)
        try:
            moment = email.utils.parsedate_to_datetime(retry_after)
        except ValueError:
            return self._retries.backoff.wait_s(attempt)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return min(max(moment.timestamp() - self._now(), 0.0), MAX_WAIT_S)


def authorization(username: str, password: str) -> str:
    """The header's value for a name and its password."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _without_query(address: str) -> str:
    """The address without a query, which may hold a secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{'' if parts.port is None else f':{parts.port}'}"


def _cause(error: Exception) -> BaseException:
    """What Python said of the connection: urllib3 wraps it, in one of two ways."""
    inner = next((argument for argument in error.args if isinstance(argument, Exception)), None)
    return error.__cause__ or inner or error
