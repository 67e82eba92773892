"""Converts between CloudEvents 1.0 and messages: binary, structured and batch mode over HTTP. Pure.

Source: the CloudEvents specification 1.0.2 with its JSON format and HTTP binding. The attributes of an event are
properties `CE_<name>` of its message, as in RocketMQ's binding of CloudEvents for Java; its data is the body.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
import orjson

from millstream.model import properties as names
from millstream.model.expiry import expires_ms_of
from millstream.model.message import StoredMessage
from millstream.model.outside_text import MAX_LABEL_CHARACTERS, clean_text
from millstream.protocol.content_fields import (
    CONTENT_TYPE,
    EVENT_CONTENT_TYPE,
    MQTT_CONTENT_TYPE,
    TRACE_PARENT,
    content_type_of,
)

__all__ = [
    "ATTRIBUTE_PREFIX",
    "BATCH_TYPE",
    "HEADER_PREFIX",
    "MAX_ATTRIBUTES",
    "MAX_EXTENSION_CHARACTERS",
    "STRUCTURED_TYPE",
    "VERSION_HEADER",
    "CloudEvent",
    "binary_headers",
    "check_event",
    "encode_event",
    "event_attributes",
    "expiry_of_event",
    "own_attributes",
    "property_of_attribute",
    "read_binary_event",
    "read_json_event",
    "read_plain_events",
    "split_array",
]

MAX_ATTRIBUTES: Final = 60
"""Attributes of one event at most."""

MAX_EXTENSION_CHARACTERS: Final = 20
"""Characters of a user property's name at most that becomes an extension of its own; CloudEvents recommends no more."""

HEADER_PREFIX: Final = "ce-"
"""Before the name of an attribute in a header."""

VERSION_HEADER: Final = "ce-specversion"
"""The header by which a request in binary mode is known."""

ATTRIBUTE_PREFIX: Final = "CE_"
"""Before the name of an attribute in a property."""

STRUCTURED_TYPE: Final = "application/cloudevents+json"
"""The content type of one event in the structured mode."""

BATCH_TYPE: Final = "application/cloudevents-batch+json"
"""The content type of an array of events."""

_EXPIRY: Final = "expirytime"
"""The extension that says when an event expires. Source: CloudEvents, documented extensions."""

_PARTITION_KEY: Final = "partitionkey"
_ID: Final = ATTRIBUTE_PREFIX + "id"
_SOURCE: Final = ATTRIBUTE_PREFIX + "source"
_SHOWN_CONTENT_TYPES: Final = frozenset((CONTENT_TYPE, MQTT_CONTENT_TYPE))
"""Properties that stand in the attribute datacontenttype."""

_OTHER_PROPERTIES: Final = "millstreamprops"
"""The extension with the user properties, as a JSON object, whose names cannot be those of extensions."""

_REQUIRED: Final = ("id", "source", "specversion", "type")
_NAME: Final = re.compile("[a-z0-9]{1,64}")
_EXTENSION: Final = re.compile(f"[a-z0-9]{{1,{MAX_EXTENSION_CHARACTERS}}}")
_DATA: Final = ("data", "data_base64")
_TAKEN: Final = frozenset((*_REQUIRED, *_DATA, "datacontenttype", "dataschema", "subject", "time", _OTHER_PROPERTIES))
_PROPERTIES: Final = {
    name: ATTRIBUTE_PREFIX + name for name in (*_REQUIRED, "datacontenttype", "dataschema", "subject", "time")
}
_KNOWN: Final = _PROPERTIES.keys()
_VERSION: Final = "1.0"
# A message has a body; an event without data says as much as one whose data is null.
_NO_DATA: Final = b"null"
_TIME: Final = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d{1,18})?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_LAST_TIME_MS: Final = 253_402_300_799_000
_UNKNOWN_DATA: Final = "application/octet-stream"
_MESSAGE_TYPE: Final = "millstream.message"
# All that may stand in a header's value as it is: printable ASCII but blank, quote and percent sign.
_SAFE: Final = "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"

_Decoded = TypeVar("_Decoded")

_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


class _PlainEvent(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event whose attributes are texts, and all of the specification."""

    specversion: str
    id: str
    source: str
    type: str
    datacontenttype: str | None = None
    dataschema: str | None = None
    subject: str | None = None
    time: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")


_PLAIN_EVENTS: Final = msgspec.json.Decoder(list[_PlainEvent])


@dataclass(slots=True)
class CloudEvent:
    """One event: its data as bytes, and its attributes as properties of a message. Nobody changes one."""

    body: bytes
    properties: Mapping[str, str]
    key: str | None


def read_binary_event(headers: Mapping[str, str], body: bytes) -> CloudEvent:
    """An event in the binary mode: attributes in headers (in lower case), the data is the body. ValueError."""
    attributes = {
        name.removeprefix(HEADER_PREFIX): unquote(value) if "%" in value else value
        for name, value in headers.items()
        if name.startswith(HEADER_PREFIX)
    }
    if "content-type" in headers:
        attributes["datacontenttype"] = headers["content-type"]
    return _event(attributes, body)


def read_json_event(text: bytes) -> CloudEvent:
    """An event in the structured mode. ValueError with what is wrong."""
    try:
        members = _decode_raw(_RAW_OBJECT, text)
        attributes = {name: _text(name, bytes(value)) for name, value in members.items() if name not in _DATA}
    except (msgspec.MsgspecError, orjson.JSONDecodeError) as error:
        raise ValueError(str(error)) from None
    return _event({name: value for name, value in attributes.items() if value is not None}, _data(members))


def read_plain_events(text: bytes) -> list[CloudEvent] | None:
    """The events of a batch, checked, if all of them are plain: with no attributes but those of the specification, in
    printable ASCII. None for any other text, of which `split_array` and `read_json_event` say what it is."""
    try:
        found = _PLAIN_EVENTS.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    events = []
    for one in found:
        event = _plain_event(one)
        if event is None:
            return None
        events.append(event)
    return events


def _plain_event(one: _PlainEvent) -> CloudEvent | None:
    key, time = one.id, one.time
    held = {"CE_specversion": one.specversion, "CE_id": key, "CE_source": one.source, "CE_type": one.type}
    if one.datacontenttype is not None:
        held["CE_datacontenttype"] = one.datacontenttype
    if one.dataschema is not None:
        held["CE_dataschema"] = one.dataschema
    if one.subject is not None:
        held["CE_subject"] = one.subject
    if time is not None:
        held["CE_time"] = time
    shown, body = "".join(held.values()), bytes(one.data)
    if (
        one.specversion != _VERSION
        or not (key and one.source and one.type)
        or key.isspace()
        or len(shown) > MAX_LABEL_CHARACTERS
        or not (shown.isascii() and shown.isprintable())
        or (time is not None and not _TIME.fullmatch(time))
        # A text is the data itself, and bytes beyond ASCII may be no text at all.
        or body[:1] == b'"'
        or not body.isascii()
    ):
        return None
    return CloudEvent(body.strip(), held, key)


def split_array(text: bytes) -> list[bytes]:
    """The elements of a JSON array, each as it is written. ValueError."""
    try:
        return [bytes(one).strip() for one in _decode_raw(_RAW_LIST, text)]
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def check_event(event: CloudEvent) -> None:
    """Refuse (ValueError) what CloudEvents 1.0 forbids and older senders still say: another version, and a time that
    is not of RFC 3339."""
    held = event.properties
    version = held[ATTRIBUTE_PREFIX + "specversion"]
    if version != _VERSION:
        raise ValueError(f"specversion is {version[:40]!r}; {_VERSION} is taken")
    for name in ("time", _EXPIRY):
        time = held.get(ATTRIBUTE_PREFIX + name)
        if time is not None and not _TIME.fullmatch(time):
            raise ValueError(f"the {name} {time[:80]!r} is not of RFC 3339, as in 2026-11-24T08:30:00Z")


def expiry_of_event(event: CloudEvent) -> int | None:
    """When an event that was checked expires by its extension `expirytime`, in ms since 1970; None if it does not."""
    expiry_text = event.properties.get(ATTRIBUTE_PREFIX + _EXPIRY)
    if expiry_text is None:
        return None
    # A leap second is the end of its minute, and what is finer than a microsecond does not count.
    text = re.sub(r":60(?=[.Zz+-])", ":59", re.sub(r"(\.\d{1,6})\d*", r"\1", expiry_text.upper()))
    try:
        return max(int(datetime.fromisoformat(text).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        return None


def property_of_attribute(name: str) -> str | None:
    """The property that holds the attribute of an event; None for what is no name of one."""
    return _PROPERTIES.get(name) or (ATTRIBUTE_PREFIX + name if _NAME.fullmatch(name) else None)


def own_attributes(held: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a message that was sent as an event; none of any other message."""
    if _ID not in held or _SOURCE not in held:
        return {}
    start = len(ATTRIBUTE_PREFIX)
    return {name[start:]: value for name, value in held.items() if name.startswith(ATTRIBUTE_PREFIX)}


def _decode_raw(decoder: msgspec.json.Decoder[_Decoded], text: bytes) -> _Decoded:
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


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


def _text(name: str, written: bytes) -> str | None:
    if written[:1] == b'"' and b"\\" not in written and written.isascii():
        # An ordinary text stands there as it is.
        text = written[1:-1].decode()
        if text.isprintable():
            return text
    value = orjson.loads(written)
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
    # One look at all its text lets the ordinary event pass; only what is unusual is taken apart.
    text = "".join(attributes.values())
    if len(text) <= MAX_LABEL_CHARACTERS and text.isascii() and text.isprintable() and attributes.keys() <= _KNOWN:
        held = {_PROPERTIES[name]: value for name, value in attributes.items()}
        key = attributes["id"]
        return CloudEvent(body or _NO_DATA, held, key if key.strip() else None)
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of an attribute: lower-case letters and digits")
        if len(value) > MAX_LABEL_CHARACTERS:
            raise ValueError(f"the attribute {name} has {len(value):,} characters; {MAX_LABEL_CHARACTERS:,} are taken")
    properties = {ATTRIBUTE_PREFIX + name: clean_text(value) for name, value in attributes.items()}
    key = clean_text(attributes["id"])
    return CloudEvent(body or _NO_DATA, properties, key if key.strip() else None)


def event_attributes(message: StoredMessage) -> dict[str, str]:
    """The attributes of any message as an event, in the order in which they are written.

    A message that was an event has its own. Of another one id is the message id, source its queue, type its tag,
    subject its first key, partitionkey its message group, and time when it was stored. User properties whose names can
    be those of extensions are extensions; the others stand in `millstreamprops`, and with them what no attribute has:
    further keys, and the priority.
    """
    held = message.properties
    others: dict[str, str] = {}
    found = own_attributes(held)
    if not found:
        found = _made_attributes(message)
        if len(message.keys) > 1:
            others[names.KEYS] = held[names.KEYS]
        if names.PRIORITY in held:
            others[names.PRIORITY] = held[names.PRIORITY]
    elif EVENT_CONTENT_TYPE not in held:
        kind = content_type_of(held)
        if kind is not None:
            found["datacontenttype"] = kind
    expires_ms = expires_ms_of(held)
    if expires_ms is not None and _EXPIRY not in found:
        found[_EXPIRY] = _text_of_time(expires_ms)
    for name, value in message.user_properties.items():
        if name.startswith(ATTRIBUTE_PREFIX) or name in _SHOWN_CONTENT_TYPES:
            continue
        if _EXTENSION.fullmatch(name) and name not in _TAKEN and name not in found:
            found[name] = value
        else:
            others[name] = value
    if names.TRACE_CONTEXT in held:
        found.setdefault(TRACE_PARENT, held[names.TRACE_CONTEXT])
    if others:
        found[_OTHER_PROPERTIES] = orjson.dumps(others).decode()
    return found


def _made_attributes(message: StoredMessage) -> dict[str, str]:
    found = {
        "specversion": _VERSION,
        "id": message.message_id or f"{message.queue_id}-{message.queue_offset}",
        "source": f"/millstream/{quote(message.topic)}/{message.queue_id}",
        "type": message.tag or _MESSAGE_TYPE,
        "time": _text_of_time(message.store_timestamp_ms),
        "datacontenttype": content_type_of(message.properties) or _UNKNOWN_DATA,
    }
    if message.keys:
        found["subject"] = message.keys[0]
    group = message.properties.get(names.MESSAGE_GROUP)
    if group:
        found[_PARTITION_KEY] = group
    return found


def _text_of_time(time_ms: int) -> str:
    """RFC 3339, with milliseconds; the end of the year 9999 for what is later than that."""
    moment = datetime.fromtimestamp(min(time_ms, _LAST_TIME_MS) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode_event(
    attributes: Mapping[str, str], body: bytes, extensions: Mapping[str, str | int] | None = None
) -> bytes:
    """The event in the structured mode: JSON, with `extensions` beside the attributes.

    Data stands in `data` as JSON where the content type says so, or where there is none, and it can be read; as a text
    where that is what the content type says; else in `data_base64`.
    """
    event: dict[str, Any] = {**attributes, **(extensions or {})}
    kind = attributes.get("datacontenttype", "application/json").partition(";")[0].strip().lower()
    if _is_json(kind):
        event["data"] = _json_data(body)
    elif kind.startswith("text/"):
        event["data"] = _text_data(body)
    if event.get("data") is None:
        event.pop("data", None)
        event["data_base64"] = base64.b64encode(body).decode()
    return orjson.dumps(event)


def _is_json(kind: str) -> bool:
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def _json_data(body: bytes) -> orjson.Fragment | str | None:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        # An event whose data was a text is stored as that text.
        return _text_data(body)
    return orjson.Fragment(body)


def _text_data(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def binary_headers(attributes: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """The headers of the event in the binary mode, whose body is the data."""
    headers = [
        (HEADER_PREFIX + name, quote(value, safe=_SAFE))
        for name, value in attributes.items()
        if name != "datacontenttype"
    ]
    if "datacontenttype" in attributes:
        kind = attributes["datacontenttype"]
        headers.append(("content-type", kind if kind.isascii() and kind.isprintable() else _UNKNOWN_DATA))
    return headers
