"""The events of one post, by what its headers say that it holds; CloudEvents in both content modes. Pure."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import orjson

from millstream.ingest.event_batch import MAX_EVENT_BYTES, MAX_LABEL_CHARACTERS, EventBatch, clean_text

__all__ = ["MAX_ATTRIBUTES", "MAX_EVENTS", "BadPost", "CloudEvent", "batch_of", "of_headers", "of_json", "unpack_body"]


MAX_ATTRIBUTES: Final = 60
"""Attributes of one event at most."""

_HEADER: Final = "ce-"
_PROPERTY: Final = "CE_"
_REQUIRED: Final = ("id", "source", "specversion", "type")
_NAME: Final = re.compile("[a-z0-9]{1,64}")
_DATA: Final = ("data", "data_base64")

_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One event: its data as bytes, and its attributes as properties of a message."""

    body: bytes
    properties: Mapping[str, str]
    key: str | None


def of_headers(headers: Mapping[str, str], body: bytes) -> CloudEvent:
    """An event in the binary mode: attributes in headers (in lower case), the data is the body. ValueError."""
    attributes = {
        name.removeprefix(_HEADER): unquote(value) for name, value in headers.items() if name.startswith(_HEADER)
    }
    if "content-type" in headers:
        attributes["datacontenttype"] = headers["content-type"]
    return _event(attributes, body)


def of_json(text: bytes) -> CloudEvent:
    """An event in the structured mode. ValueError with what is wrong."""
    try:
        members = _RAW_OBJECT.decode(text)
        attributes = {
            name: _text(name, orjson.loads(bytes(value))) for name, value in members.items() if name not in _DATA
        }
    except (msgspec.MsgspecError, orjson.JSONDecodeError) as error:
        raise ValueError(str(error)) from None
    return _event({name: value for name, value in attributes.items() if value is not None}, _data(members))


def _data(members: Mapping[str, msgspec.Raw]) -> bytes:
    packed, plain = members.get("data_base64"), members.get("data")
    if packed is not None and plain is not None:
        raise ValueError("it has data and data_base64")
    if plain is not None:
        raw = bytes(plain).strip()
        value = orjson.loads(raw)
        # A text is the data itself; everything else is JSON, which is kept as it is written.
        return value.encode() if isinstance(value, str) else raw
    if packed is None:
        return b""
    try:
        return base64.b64decode(orjson.loads(bytes(packed)), validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("data_base64 is no base64") from None


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return orjson.dumps(value).decode()
    raise ValueError(f"the attribute {name[:80]!r} is a {type(value).__name__}, not a text, number or boolean")


def _event(attributes: Mapping[str, str], body: bytes) -> CloudEvent:
    missing = [name for name in _REQUIRED if not attributes.get(name)]
    if missing:
        raise ValueError(f"the attribute {missing[0]} is missing")
    if len(attributes) > MAX_ATTRIBUTES:
        raise ValueError(f"it has {len(attributes)} attributes; {MAX_ATTRIBUTES} are taken")
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of an attribute: lower-case letters and digits")
        if len(value) > MAX_LABEL_CHARACTERS:
            raise ValueError(f"the attribute {name} has {len(value):,} characters; {MAX_LABEL_CHARACTERS:,} are taken")
    properties = {_PROPERTY + name: clean_text(value) for name, value in attributes.items()}
    key = clean_text(attributes["id"])
    # A message has a body; an event without data says as much as one whose data is null.
    return CloudEvent(body or b"null", properties, key if key.strip() else None)


MAX_EVENTS: Final = 100_000
"""Events of one post at most."""

_JSON_TYPES: Final = frozenset({"application/json", "text/json"})
_NDJSON_TYPES: Final = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-seq"}
)
_STRUCTURED: Final = "application/cloudevents+json"
_STRUCTURED_BATCH: Final = "application/cloudevents-batch+json"

_RAW_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


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
    if kind == _STRUCTURED:
        found = [_cloud_event("The body", of_json, body)]
    elif kind == _STRUCTURED_BATCH:
        events = _elements(body)
        found = [_cloud_event(f"Element {number}", of_json, event) for number, event in enumerate(events, 1)]
    elif "ce-specversion" in headers:
        found = [_cloud_event("The post", lambda data: of_headers(headers, data), body)]
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
        elements = [bytes(one).strip() for one in _RAW_LIST.decode(body)]
    except msgspec.MsgspecError as error:
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
