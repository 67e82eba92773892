"""A blocking client of a job server's HTTP interface, for commands and for programs that submit themselves."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from millstream.client.profiles import tls_of_environment
from millstream.model.catalogue import CATALOGUE
from millstream.model.errors import ConnectionFailed, MillstreamError, Refused, TimedOut, Unreachable

__all__ = ["DEFAULT_JOB_SERVER", "MAX_ANSWER_BYTES", "TOKEN_VARIABLE", "JobServerClient"]

DEFAULT_JOB_SERVER: Final = "http://127.0.0.1:8084"
"""Where `millstream start jobs` listens."""

TOKEN_VARIABLE: Final = "MILLSTREAM_JOB_TOKEN"
"""The environment's variable with the token of the job server."""

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Bytes of an answer at most."""

_MAX_REDIRECTS: Final = 3
_REMEDY: Final = "Start one with millstream start jobs, or name it with --server."


class JobServerClient:
    """Asks the job server at `url` (http or https), which may send it on to the one that leads.

    Each call raises the server's refusal under its number; Unreachable, or TimedOut after `timeout_s`;
    PROTOCOL_VIOLATION where something else answers. `token` is that of MILLSTREAM_JOB_TOKEN where none is given.
    """

    def __init__(self, url: str = DEFAULT_JOB_SERVER, *, timeout_s: float = 60.0, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token

    def submit(
        self,
        *,
        name: str,
        kind: str,
        text: str,
        settings: Mapping[str, str] | None = None,
        cores: int = 0,
        memory_mb: int = 0,
    ) -> dict[str, Any]:
        """Hand in a job: a script (`kind` sql) or a program; what the server keeps of it."""
        body = {
            "name": name,
            "kind": kind,
            "text": text,
            "settings": dict(settings or {}),
            "demand": {"cores": cores, "memory_mb": memory_mb},
        }
        return self._object("POST", "/v1/jobs", body)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, by name."""
        found = self._object("GET", "/v1/jobs")["jobs"]
        assert isinstance(found, list)
        return found

    def describe(self, name: str) -> dict[str, Any]:
        """One job, with its progress and its failures."""
        return self._object("GET", f"/v1/jobs/{quote(name, safe='')}")

    def change(self, name: str, action: str) -> dict[str, Any]:
        """Do `pause`, `resume` or `cancel` to a job; what the server keeps of it then."""
        return self._object("POST", f"/v1/jobs/{quote(name, safe='')}/{action}", {})

    def update(
        self, name: str, *, text: str | None, settings: Mapping[str, str] | None, apply: bool, **demand: int
    ) -> dict[str, Any]:
        """What another text or other settings change, and what becomes of the state; with `apply` it is done."""
        body: dict[str, Any] = {"apply": apply}
        if text is not None:
            body["text"] = text
        if settings is not None:
            body["settings"] = dict(settings)
        if demand:
            body["demand"] = demand
        return self._object("POST", f"/v1/jobs/{quote(name, safe='')}/update", body)

    def savepoint(self, name: str, *, directory: str = "", label: str = "") -> dict[str, Any]:
        """Write a savepoint of a job: its `directory`, `size_bytes`, and `lines` that describe it.

        `directory` lies on the machine of the server and must not exist; a blank one lets the server choose.
        """
        body = {"directory": directory, "label": label}
        return self._object("POST", f"/v1/jobs/{quote(name, safe='')}/savepoint", body)

    def logs(self, name: str, lines: int) -> list[str]:
        """The last lines of the log of the job's driver."""
        found = self._object("GET", f"/v1/jobs/{quote(name, safe='')}/logs?{urlencode({'lines': lines})}")["lines"]
        assert isinstance(found, list)
        return found

    # inside

    def _object(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        url = self._url
        for _ in range(_MAX_REDIRECTS):
            status, location, content = self._ask(url, method, path, body)
            if status != 307 or not location:
                break
            parts = urlsplit(location)
            url = f"{parts.scheme}://{parts.netloc}"
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConnectionFailed("PROTOCOL_VIOLATION", f"{url} is no job server: it answers {status}.")
        if status >= 400:
            raise _refusal(status, found)
        return found

    def _ask(self, url: str, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, str | None, bytes]:
        connection = _connection(url, self._timeout_s)
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Location"), answer.read(MAX_ANSWER_BYTES)
        except TimeoutError:
            raise TimedOut(f"The job server {url} did not answer within {self._timeout_s:g} s.") from None
        except ssl.SSLError as error:
            raise Unreachable(f"The job server {url} cannot be verified: {error.reason or error}.", remedy="") from None
        except OSError as error:
            words = f"The job server {url} cannot be reached: {error.strerror or error}."
            raise Unreachable(words, remedy=_REMEDY) from None
        except HTTPException as error:
            raise ConnectionFailed("PROTOCOL_VIOLATION", f"{url} does not speak HTTP: {error}.") from None
        finally:
            connection.close()


def _connection(url: str, timeout_s: float) -> HTTPConnection:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise MillstreamError(
            "JOB_REQUEST", f"{url!r} is no address of a job server.", remedy=f"Write {DEFAULT_JOB_SERVER}."
        )
    if parts.scheme == "https":
        return HTTPSConnection(host, port, timeout=timeout_s, context=tls_of_environment())
    return HTTPConnection(host, port, timeout=timeout_s)


def _refusal(status: int, told: Mapping[str, Any]) -> MillstreamError:
    """The server's refusal, as an error of ours."""
    name, message = str(told.get("code", "")), str(told.get("message", ""))
    if name not in CATALOGUE:
        return ConnectionFailed("PROTOCOL_VIOLATION", f"The job server answers {status}: {message or told!r:.300}")
    return Refused(name, message, remedy=str(told.get("remedy", "")))
