"""AMQP messages as records, and records as AMQP messages.

A record's property `amqp_properties` holds all 14 properties as they came (base64 of flags and values), so that an AMQP
consumer gets the same bytes. Beside it stands what others can use: the message id as key, the routing key as tag, the
headers and the other properties as text. Records that no AMQP client sent are told by what they have.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from millstream.model import properties as names
from millstream.model.expiry import expires_ms_of
from millstream.model.message import StoredMessage
from millstream.model.properties import RESERVED, decode_priority, has_control_character
from millstream.model.property_text import unescape_text
from millstream.model.routing.routes import AMQP_EXCHANGE, AMQP_ROUTING_KEY, encode_further_keys, place_in_amqp
from millstream.protocol.amqp.content import NO_PROPERTIES, ContentProperties, decode_properties, encode_properties
from millstream.protocol.amqp.field_table import (
    MAX_NAME_BYTES,
    FieldTable,
    FieldValue,
    Timestamp,
    decode_table,
    encode_table,
)
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode
from millstream.protocol.cloud_events import ATTRIBUTE_PREFIX, own_attributes, property_of_attribute
from millstream.protocol.content_fields import (
    AMQP_CORRELATION,
    CONTENT_TYPE,
    EMPTY_BODY,
    EVENT_CONTENT_TYPE,
    MQTT_CONTENT_TYPE,
    MQTT_CORRELATION,
    MQTT_EMPTY,
    MQTT_RESPONSE_TOPIC,
    REPLY_TO,
    TRACE_PARENT,
    content_type_of,
    correlation_of,
    is_of_mqtt,
    reply_place_of,
)
from millstream.proxy.amqp.sender_keys import BLIND_COPIES, sender_keys, without_header

__all__ = [
    "AMQP_PRIORITY",
    "AMQP_PROPERTIES",
    "MAX_READABLE_BYTES",
    "PUBLISHED_TO",
    "ContentView",
    "header_text",
    "place_of",
    "readable_properties",
    "routing_of",
    "stored_body",
    "view_content",
    "wire_properties",
]

AMQP_PROPERTIES: Final = "amqp_properties"
"""All its properties as they came, base64."""

AMQP_PRIORITY: Final = "amqp_priority"
"""Its priority."""

PUBLISHED_TO: Final = "amqp_published_to"
"""The exchange that a message was published to, where an alternate one took it."""

MAX_READABLE_BYTES: Final = 4 * 1024
"""Bytes of headers and properties that are stored as text beside their exact form at most; what is more is left out, so
that the largest properties which are taken can be stored."""

_EMPTY_STANDS: Final = b" "
_MAX_CHARACTER_BYTES: Final = 4
_MAX_TAG_BYTES: Final = 127
_MAX_KEY_CHARACTERS: Final = 1024
_EVENT_PREFIX: Final = "cloudEvents:"
_EVENT_PREFIXES: Final = (_EVENT_PREFIX, "cloudEvents_")
"""Before the attributes of an event in headers; the second where a client takes no colon. Source: CloudEvents, AMQP
binding."""

_MAX_PRIORITY: Final = 255
_MAX_EXPIRATION_DIGITS: Final = 10
_LONGEST_EXPIRATION_MS: Final = 10**_MAX_EXPIRATION_DIGITS - 1
_READABLE: Final = {
    "content_type": CONTENT_TYPE,
    "content_encoding": "content_encoding",
    "correlation_id": AMQP_CORRELATION,
    "reply_to": REPLY_TO,
    "timestamp": "timestamp",
    "type": "type",
    "user_id": "user_id",
    "app_id": "app_id",
    "priority": AMQP_PRIORITY,
}
"""The names under which properties are stored as text."""

_KNOWN_PROPERTIES: Final = 1024
"""Properties that are remembered as they were decoded: a publisher sends the same ones again and again."""


@dataclass(frozen=True, slots=True)
class ContentView:
    """What a message's properties say that matters on its way.

    `properties` are those that its consumers get, `stored` is what a record holds of them, and `further_keys` are the
    routing keys beside its own.
    """

    properties: bytes
    stored: Mapping[str, str]
    headers: FieldTable
    expiration_ms: int | None
    priority: int
    reply_to: str | None
    user_id: str | None
    further_keys: tuple[str, ...]


@lru_cache(maxsize=_KNOWN_PROPERTIES)
def view_content(data: bytes) -> ContentView:
    """What flags and values say. ConnectionFailure for bytes that are none, ChannelFailure for a bad expiration."""
    content = decode_properties(data)
    headers = decode_table(content.headers)[0] if content.headers else {}
    stored: dict[str, str] = {}
    further = sender_keys(headers)
    if isinstance(headers.get(BLIND_COPIES), list):
        data = without_header(data, BLIND_COPIES)
    if further:
        stored[names.AMQP_KEYS] = encode_further_keys(further)
    if content.message_id and _is_key(content.message_id):
        stored[names.KEYS] = content.message_id
    if data != NO_PROPERTIES:
        stored[AMQP_PROPERTIES] = base64.b64encode(data).decode()
    stored |= readable_properties(content, headers)
    trace = stored.get(TRACE_PARENT)
    if trace:
        stored[names.TRACE_CONTEXT] = trace
    return ContentView(
        data,
        stored,
        headers,
        _expiration_ms(content.expiration),
        content.priority or 0,
        content.reply_to,
        content.user_id,
        further,
    )


def readable_properties(content: ContentProperties, headers: FieldTable) -> dict[str, str]:
    """Headers and properties as text, for who does not speak AMQP; not more than `MAX_READABLE_BYTES`."""
    found: dict[str, str] = {}
    wanted: list[tuple[str, FieldValue]] = [
        (name, getattr(content, field)) for field, name in _READABLE.items() if getattr(content, field) is not None
    ]
    size_bytes = 0
    for header, value in (*wanted, *headers.items()):
        text, name = header_text(value), _property_of(header)
        if text is None or not _is_storable(name, text) or name in found:
            continue
        size_bytes += len(name.encode()) + len(text.encode()) + 2
        if size_bytes > MAX_READABLE_BYTES:
            break
        found[name] = text
    return found


def _property_of(header: str) -> str:
    """The name under which a header is stored: attributes of events as over HTTP."""
    for prefix in _EVENT_PREFIXES:
        if header.startswith(prefix):
            return property_of_attribute(header[len(prefix) :]) or header
    return header


def header_text(value: FieldValue) -> str | None:
    """A header's value as text; None for one that has no text, as a table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float | Decimal):
        return str(value)
    return None


@lru_cache(maxsize=_KNOWN_PROPERTIES)
def routing_of(exchange: str, routing_key: str) -> Mapping[str, str]:
    """The properties by which a message is routed. The tag is the routing key where it is a legal one."""
    held = {}
    if routing_key and len(routing_key) <= _MAX_TAG_BYTES and _is_tag(routing_key):
        held[names.TAGS] = routing_key
    held[AMQP_EXCHANGE] = exchange
    held[AMQP_ROUTING_KEY] = routing_key
    return held


def stored_body(body: bytes, held: dict[str, str]) -> bytes:
    """The body as it is stored; an empty one is noted in the properties."""
    if body:
        return body
    held[EMPTY_BODY] = "true"
    return _EMPTY_STANDS


def wire_properties(message: StoredMessage) -> bytes:
    """The flags and values for an AMQP consumer."""
    held = message.properties
    exact = held.get(AMQP_PROPERTIES)
    if exact is not None:
        return base64.b64decode(exact)
    if AMQP_EXCHANGE in held:
        return NO_PROPERTIES
    return encode_properties(_properties_of_others(message))


def place_of(message: StoredMessage) -> tuple[str, str]:
    """The exchange and the routing key of a record, as short strings can hold them."""
    exchange, key = place_in_amqp(message.topic, message.properties)
    return _cut_short(message.properties.get(PUBLISHED_TO, exchange)), _cut_short(key)


def _cut_short(text: str) -> str:
    """As much of a text as a short string holds."""
    if len(text) <= MAX_NAME_BYTES // _MAX_CHARACTER_BYTES:
        return text
    return text.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode(errors="ignore")


def _properties_of_others(message: StoredMessage) -> ContentProperties:
    """Of a record that came by another protocol: what AMQP has a field for, and all else as headers."""
    held = message.properties
    read = unescape_text if is_of_mqtt(held) else str
    priority = decode_priority(held.get(names.PRIORITY, ""))
    expires_ms, correlation = expires_ms_of(held), correlation_of(held)
    content = ContentProperties(
        content_type=_short(content_type_of(held)),
        correlation_id=_short(_decode_text(correlation)),
        reply_to=_short(reply_place_of(held)),
        message_id=_short(held.get(names.KEYS)) or _short(message.message_id),
        timestamp=Timestamp(message.born_timestamp_ms // 1000),
        expiration=None if expires_ms is None else _expiration(expires_ms - message.store_timestamp_ms),
        priority=None if priority is None else min(priority, _MAX_PRIORITY),
    )
    event = own_attributes(held)
    headers: dict[str, Any] = {
        _EVENT_PREFIX + name: value for name, value in event.items() if name != "datacontenttype"
    }
    # What has found a field of its own is no header as well.
    hidden = {
        *((CONTENT_TYPE, MQTT_CONTENT_TYPE, EVENT_CONTENT_TYPE) if content.content_type else ()),
        *((MQTT_CORRELATION, AMQP_CORRELATION) if content.correlation_id else ()),
        *((MQTT_RESPONSE_TOPIC, REPLY_TO) if content.reply_to else ()),
        EMPTY_BODY,
        MQTT_EMPTY,
    }
    for name, value in message.user_properties.items():
        if name not in hidden and not (event and name.startswith(ATTRIBUTE_PREFIX)):
            headers[name] = read(value)
    if held.get(names.MESSAGE_GROUP):
        headers[names.MESSAGE_GROUP] = held[names.MESSAGE_GROUP]
    if names.TRACE_CONTEXT in held:
        headers.setdefault(TRACE_PARENT, held[names.TRACE_CONTEXT])
    fitting = {name: value for name, value in headers.items() if len(name.encode()) <= MAX_NAME_BYTES}
    return replace(content, headers=encode_table(fitting) if fitting else None)


def _expiration(left_ms: int) -> str:
    return str(min(max(left_ms, 0), _LONGEST_EXPIRATION_MS))


def _decode_text(data: bytes | None) -> str | None:
    if data is not None:
        with suppress(UnicodeDecodeError):
            return data.decode()
    return None


def _short(text: str | None) -> str | None:
    return text if text and len(text.encode()) <= 255 else None


def _expiration_ms(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _MAX_EXPIRATION_DIGITS:
        words = f"invalid expiration '{text}': milliseconds as text, of {_MAX_EXPIRATION_DIGITS} digits at most"
        raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
    return int(text)


def _is_key(text: str) -> bool:
    return len(text) <= _MAX_KEY_CHARACTERS and " " not in text and text.isprintable()


def _is_tag(text: str) -> bool:
    return "|" not in text and text == text.strip() and text.isprintable()


def _is_storable(name: str, text: str) -> bool:
    if not name or name in RESERVED or name in (AMQP_EXCHANGE, AMQP_ROUTING_KEY, AMQP_PROPERTIES):
        return False
    return name.isprintable() and not has_control_character(text)
