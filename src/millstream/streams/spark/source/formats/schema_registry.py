"""A client of Confluent-compatible schema registries, and the message frame that names a schema.

A framed body is a zero byte, the schema's number in four bytes, big-endian, and the Avro value.
Source: Confluent's wire format.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from millstream.model.backoff import Backoff
from millstream.model.errors import Unreachable
from millstream.streams.connectors.http.caller import MAX_WAIT_S, CallRetries, HttpCaller, HttpServer, authorization
from millstream.streams.errors import JobError
from millstream.streams.spark.source.formats.avro_schema import parse_schema
from millstream.streams.spark.source.formats.body_format import BodyFormat

__all__ = ["FRAME_BYTES", "MISSING_FOR_S", "SchemaRegistry", "frame", "framed_schema", "registry_of"]

_FRAME = struct.Struct(">bI")

FRAME_BYTES: Final = _FRAME.size
"""Bytes before the value."""

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 10.0
_RETRIES: Final = CallRetries(3, Backoff(0.2, MAX_WAIT_S))

MISSING_FOR_S: Final = 30.0
"""How long a schema that the registry does not have is not requested again."""


class SchemaRegistry:
    """Schemas by number. What was asked once is kept; a registry that is away raises Unreachable, which passes."""

    def __init__(self, url: str, user_info: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        name, _, password = user_info.partition(":")
        headers = {"Accept": _TYPE} | ({"Authorization": authorization(name, password)} if user_info else {})
        self._url = url
        self._caller = HttpCaller(HttpServer((url.rstrip("/"),), headers, _TIMEOUT_S), _RETRIES)
        self._known: dict[int, Any] = {}
        self._missing: dict[int, tuple[float, str]] = {}
        self._clock = clock

    def schema(self, number: int) -> Any:
        """The parsed schema of that number. Raises ValueError where there is none, or none that can be used."""
        since_s, known = self._missing.get(number, (0.0, ""))
        if known and self._clock() - since_s < MISSING_FOR_S:
            raise ValueError(known)
        if number not in self._known:
            answer = self._request("GET", f"/schemas/ids/{number}")
            problem = "" if answer is not None else f"the registry has no schema {number}"
            if answer is not None and answer.get("references"):
                problem = f"the schema {number} is made of several, which are not read"
            if answer is not None and answer.get("schemaType", "AVRO") != "AVRO":
                problem = f"the schema {number} is {answer['schemaType']}, not AVRO"
            if problem or answer is None:
                self._missing[number] = (self._clock(), problem)
                raise ValueError(problem)
            self._known[number] = parse_schema(answer["schema"])
        return self._known[number]

    def register(self, subject: str, schema: str) -> int:
        """The number of the schema, under which the registry knows it now. Raises JobError SINK_FAILED."""
        body = msgspec.json.encode({"schema": schema})
        answer = self._caller.call(
            "POST", f"/subjects/{quote(subject, safe='')}/versions", body, {"Content-Type": _TYPE}
        )
        if answer.is_busy:
            raise Unreachable(f"The schema registry {self._url} says {answer.status}: {answer.beginning}.")
        if not answer.is_success:
            words = f"The schema registry refuses the schema of {subject}: status {answer.status}, {answer.beginning}."
            raise JobError("SINK_FAILED", words)
        return int(msgspec.json.decode(answer.body)["id"])

    def _request(self, method: str, path: str) -> dict[str, Any] | None:
        answer = self._caller.call(method, path)
        if answer.is_success:
            found: dict[str, Any] = msgspec.json.decode(answer.body)
            return found
        if answer.status == 404:
            return None
        if answer.is_busy:
            raise Unreachable(f"The schema registry {self._url} says {answer.status}: {answer.beginning}.")
        raise JobError("JOB_FAILED", f"The schema registry {self._url} says {answer.status}: {answer.beginning}.")


@lru_cache(maxsize=16)
def _registry(url: str, user_info: str) -> SchemaRegistry:
    return SchemaRegistry(url, user_info)


def registry_of(text: BodyFormat) -> SchemaRegistry:
    """The registry that a table's options name, one for a process."""
    return _registry(text.option("url"), text.option("basic-auth.user-info"))


def framed_schema(body: bytes | memoryview) -> int:
    """The number of the schema in a frame. Raises ValueError for a body without one."""
    if len(body) < FRAME_BYTES:
        raise ValueError(f"{len(body)} bytes are no message of a schema registry")
    magic, number = _FRAME.unpack_from(body)
    if magic != 0:
        raise ValueError(f"the first byte is {magic}, not 0 as in messages of a schema registry")
    return int(number)


def frame(number: int) -> bytes:
    """What stands before the value."""
    return _FRAME.pack(0, number)
