"""Parses the events of one post, by its headers. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import orjson

from millstream.ingest.event_batch import MAX_EVENT_BYTES, EventBatch
from millstream.protocol.cloud_events import (
    BATCH_TYPE,
    STRUCTURED_TYPE,
    VERSION_HEADER,
    CloudEvent,
    read_binary_event,
    read_json_event,
    split_array,
)

__all__ = ["MAX_EVENTS", "BadPost", "batch_of", "unpack_body"]


MAX_EVENTS: Final = 100_000
"""Events of one post at most."""

_JSON_TYPES: Final = frozenset({"application/json", "text/json"})
_NDJSON_TYPES: Final = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-seq"}
)


class BadPost(Exception):
    """A post that cannot be taken, with the HTTP status that says so."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def unpack_body(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """The body as it was before its Content-Encoding. 415 for another one than gzip, 413 beyond `max_bytes`."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise BadPost(415, f"The Content-Encoding {encoding[:80]!r} is not taken; send gzip or none.")
    plain = bytearray()
    while body:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            plain += unpacker.decompress(body, max_bytes + 1 - len(plain))
        except zlib.error as error:
            raise BadPost(400, f"The body is no gzip: {error}.") from None
        if len(plain) > max_bytes:
            raise BadPost(413, f"The body unpacks to more than {max_bytes:,} bytes.")
        if not unpacker.eof:
            raise BadPost(400, "The body is no gzip: it ends in the middle.")
        body = unpacker.unused_data
    return bytes(plain)


def batch_of(headers: Mapping[str, str], body: bytes, peer: str) -> EventBatch:
    """The events of a post. `headers` are in lower case. 400 with the place of what cannot be read, 413, 415."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    shared = {"peer": peer}
    found: list[CloudEvent] = []
    if kind == STRUCTURED_TYPE:
        found = [_cloud_event("The body", read_json_event, body)]
    elif kind == BATCH_TYPE:
        events = _elements(body)
        found = [_cloud_event(f"Element {number}", read_json_event, event) for number, event in enumerate(events, 1)]
    elif VERSION_HEADER in headers:
        found = [_cloud_event("The post", lambda data: read_binary_event(headers, data), body)]
    else:
        return _check_batch(EventBatch(_bodies(kind, body), shared))
    own = {place: one.properties for place, one in enumerate(found)}
    return _check_batch(EventBatch([one.body for one in found], shared, own, keys=[one.key for one in found]))


def _bodies(kind: str, body: bytes) -> Sequence[bytes]:
    if kind in _JSON_TYPES or kind.endswith("+json"):
        start = body.lstrip()[:1]
        if start == b"[":
            return _elements(body)
        _check_json(body, "The body")
        return [body.strip()]
    if kind in _NDJSON_TYPES:
        return _lines(body, is_json=True)
    if kind == "text/plain":
        return _lines(body, is_json=False)
    if kind in ("", "application/x-www-form-urlencoded"):
        # curl names the latter unless it is told otherwise, so that it says nothing of what the body holds.
        raise BadPost(
            415, "Name what the body holds: Content-Type: application/json, application/x-ndjson or text/plain."
        )
    return [body]


def _lines(body: bytes, *, is_json: bool) -> list[bytes]:
    found = []
    for number, line in enumerate(body.split(b"\n"), 1):
        line = line.removesuffix(b"\r").removeprefix(b"\x1e")
        if not line.strip():
            continue
        if is_json:
            _check_json(line, f"Line {number}")
        found.append(line)
    return found


def _elements(body: bytes) -> list[bytes]:
    try:
        elements = split_array(body)
    except ValueError as error:
        raise BadPost(400, f"The body is no JSON array: {error}.") from None
    for number, element in enumerate(elements, 1):
        _check_json(element, f"Element {number} of the array")
    return elements


def _check_json(text: bytes, what: str) -> None:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadPost(400, f"{what} is no JSON: {error}.") from None


def _cloud_event(what: str, read: Callable[[bytes], CloudEvent], data: bytes) -> CloudEvent:
    try:
        return read(data)
    except ValueError as error:
        raise BadPost(400, f"{what} is no CloudEvent: {error}.") from None


def _check_batch(event_batch: EventBatch) -> EventBatch:
    if not event_batch.bodies:
        raise BadPost(400, "The post holds no event.")
    if len(event_batch.bodies) > MAX_EVENTS:
        raise BadPost(413, f"The post holds {len(event_batch.bodies):,} events; {MAX_EVENTS:,} are taken at a time.")
    for number, body in enumerate(event_batch.bodies, 1):
        if not body:
            raise BadPost(400, f"Event {number} is blank.")
        if len(body) > MAX_EVENT_BYTES:
            raise BadPost(413, f"Event {number} has {len(body):,} bytes; the limit is {MAX_EVENT_BYTES:,}.")
    return event_batch
