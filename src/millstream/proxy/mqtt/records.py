"""Converts a PUBLISH to a record, and any record to an MQTT message, without loss.

A record has the payload as its body and the MQTT topic in the property `mqtt_topic`. Records of other protocols get
the name of their topic, with their tag as a second level.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

from millstream.broker.delivery.admission import MAX_USER_PROPERTIES_BYTES, is_plain
from millstream.model import properties as names
from millstream.model.expiry import expires_ms_of
from millstream.model.message import MAX_BODY_BYTES, Address, OutgoingMessage, StoredMessage
from millstream.model.properties import encode_properties
from millstream.model.property_text import escape_text, has_unsafe_character, unescape_text
from millstream.model.routing.routes import MQTT_TOPIC, ORIGIN_MQTT_TOPIC, mqtt_name_of
from millstream.model.topic import MessageType
from millstream.protocol.cloud_events import ATTRIBUTE_PREFIX, own_attributes, property_of_attribute
from millstream.protocol.content_fields import (
    CONTENT_FIELDS,
    MQTT_CONTENT_TYPE,
    MQTT_CORRELATION,
    MQTT_EMPTY,
    MQTT_QOS,
    MQTT_RESPONSE_TOPIC,
    REPLY_TO,
    SORTING_FIELDS,
    TRACE_PARENT,
    content_type_of,
    correlation_of,
    is_of_mqtt,
    reply_place_of,
)
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from millstream.protocol.mqtt.topics import check_topic_name
from millstream.protocol.record_encoder import PlainRecord
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.stored_body import body_of

__all__ = ["MARK", "application_message_of", "mqtt_topic_of", "outgoing_record", "plain_record"]

_RETAIN: Final = "mqtt_retain"
_CLIENT: Final = "mqtt_client"
_FORMAT: Final = "mqtt_format"
MARK: Final = "mqtt_qos2"
"""What tells a message of QoS 2 from all others: its client, its packet identifier and when that was noted."""

_USER: Final = "mqtt_props"
"""All user properties as JSON pairs, where their names alone would lose some: doubles, and names that are taken."""

_TEXTS: Final = {PropertyId.CONTENT_TYPE: MQTT_CONTENT_TYPE, PropertyId.RESPONSE_TOPIC: MQTT_RESPONSE_TOPIC}
_EVENT: Final = ("specversion", "id", "source", "type")
"""User properties of an event. Source: CloudEvents, MQTT binding."""
_OWN: Final = "mqtt_"
_FOREIGN_QOS: Final = 1
_FIELDS: Final = CONTENT_FIELDS - {REPLY_TO}
_KEPT_NAMES: Final = 8192
_MAX_MARKED_BYTES: Final = MAX_USER_PROPERTIES_BYTES - 200
"""Text of properties to which a mark may be added without a look at their limit."""
_MARK_TEXT: Final = encode_properties({MARK: "%s"})
_EMPTY_BODY: Final = b"\0"
"""Stands for a payload of no bytes, which brokers do not take as a body."""

_KEY_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f-\x9f]")
_MAX_KEY_CHARACTERS: Final = 1024


def outgoing_record(
    message: ApplicationMessage,
    topic: str,
    *,
    now_ms: int,
    peer: Address,
    message_group: str | None = None,
    queue_id: int | None = None,
) -> OutgoingMessage:
    """The record of a published message for a topic, bound by its message group or by its queue."""
    held = _held_of(message)
    kind = MessageType.NORMAL
    if message_group is not None:
        held[names.MESSAGE_GROUP] = message_group
        kind = MessageType.FIFO
    return OutgoingMessage(
        topic, message.payload or _EMPTY_BODY, held, kind, queue_id, born_timestamp_ms=now_ms, born_host=peer
    )


def plain_record(
    message: ApplicationMessage, topic: str, queue_id: int, *, now_ms: int, peer: Address
) -> PlainRecord | None:
    """The same for a broker of this process, ready to be stored; None where the broker has to look closer."""
    if len(message.payload) > MAX_BODY_BYTES:
        return None
    if message.properties is NO_PROPERTIES and message.payload and message.expires_ms is None and not message.retain:
        ordinary = _ordinary_of(message.topic, message.qos, message.publisher)
        if message.mark and ordinary is not None:
            ordinary = _add_mark(ordinary, message)
    else:
        ordinary = _check_ordinary(_held_of(message))
    if ordinary is None:
        return None
    held, text = ordinary
    return PlainRecord(topic, queue_id, message.payload or _EMPTY_BODY, held, text, 0, now_ms, peer)


@lru_cache(maxsize=_KEPT_NAMES)
def _ordinary_of(topic: str, qos: int, publisher: str) -> tuple[dict[str, str], bytes] | None:
    """The properties of a record for a message that has none of its own, and their text."""
    return _check_ordinary(_name_properties(topic, qos, publisher))


def _add_mark(
    ordinary: tuple[dict[str, str], bytes], message: ApplicationMessage
) -> tuple[dict[str, str], bytes] | None:
    """The same with the mark of a message of QoS 2, whose text has nothing that would have to be looked at."""
    held, text = ordinary
    if len(text) > _MAX_MARKED_BYTES:
        return _check_ordinary(_held_of(message))
    return held | {MARK: message.mark}, text + _MARK_TEXT % message.mark.encode()


def _check_ordinary(held: dict[str, str]) -> tuple[dict[str, str], bytes] | None:
    return (held, encode_properties(held)) if is_plain(held, 0) else None


def _name_properties(topic: str, qos: int, publisher: str) -> dict[str, str]:
    held = {MQTT_TOPIC: escape_text(topic), names.KEYS: _key_of(topic), MQTT_QOS: str(qos)}
    if publisher:
        held[_CLIENT] = escape_text(publisher)
    return held


def _held_of(message: ApplicationMessage) -> dict[str, str]:
    """All properties of the record of a message."""
    held = _name_properties(message.topic, message.qos, message.publisher)
    if message.retain:
        held[_RETAIN] = "1"
    if message.expires_ms is not None:
        held[names.EXPIRES_MS] = str(message.expires_ms)
    if message.mark:
        held[MARK] = message.mark
    if not message.payload:
        held[MQTT_EMPTY] = "1"
    if message.properties is not NO_PROPERTIES:
        _put_properties(held, message.properties)
    return held


def _key_of(topic: str) -> str:
    key = (
        topic
        if topic.isascii() and " " not in topic and topic.isprintable()
        else _KEY_UNSAFE.sub(lambda found: f"|{ord(found[0]):02X}", topic)
    )
    return key[:_MAX_KEY_CHARACTERS]


def _put_properties(held: dict[str, str], properties: Properties) -> None:
    values = properties.values
    for name, stored in _TEXTS.items():
        text = values.get(name)
        if isinstance(text, str):
            held[stored] = escape_text(text)
    if PropertyId.PAYLOAD_FORMAT_INDICATOR in values:
        held[_FORMAT] = str(values[PropertyId.PAYLOAD_FORMAT_INDICATOR])
    correlation = values.get(PropertyId.CORRELATION_DATA)
    if isinstance(correlation, bytes):
        held[MQTT_CORRELATION] = b64encode(correlation).decode()
    if not properties.user:
        return
    plain = dict(properties.user)
    trace = plain.get(TRACE_PARENT)
    if trace:
        held[names.TRACE_CONTEXT] = escape_text(trace)
    if all(map(plain.get, _EVENT)):
        # An event is stored as over HTTP, so that all readers know it as one.
        held[_USER] = escape_text(json.dumps(properties.user, separators=(",", ":")))
        plain = {property_of_attribute(name) or name: value for name, value in plain.items()}
    elif len(plain) != len(properties.user) or not all(map(_is_plain_name, plain)):
        held[_USER] = escape_text(json.dumps(properties.user, separators=(",", ":")))
    for own, value in plain.items():
        if _is_plain_name(own):
            held[own] = escape_text(value)


def _is_plain_name(name: str) -> bool:
    """Whether a user property may stand under its own name."""
    return (
        bool(name.strip())
        and name not in names.RESERVED
        and not name.startswith(_OWN)
        and not has_unsafe_character(name)
    )


def mqtt_topic_of(topic: str, properties: Mapping[str, str]) -> str:
    """The MQTT topic of a record; its topic where it says one that can be none."""
    said = mqtt_name_of(topic, properties)
    return said if _is_topic_name(said) else topic


@lru_cache(maxsize=_KEPT_NAMES)
def _is_topic_name(said: str) -> bool:
    try:
        check_topic_name(said)
    except PacketRefused:
        return False
    return "\0" not in said


def application_message_of(record: StoredMessage) -> ApplicationMessage:
    """The MQTT message of any record. Those of other protocols have QoS 1, and as user properties what RocketMQ sorts
    messages by, and the attributes of an event."""
    held = record.properties
    qos = held.get(MQTT_QOS, "")
    return ApplicationMessage(
        mqtt_topic_of(record.topic, held),
        body_of(record),
        int(qos) if qos in ("0", "1", "2") else _FOREIGN_QOS,
        retain=held.get(_RETAIN) == "1",
        publisher=unescape_text(held.get(_CLIENT, "")),
        expires_ms=expires_ms_of(held),
        properties=_properties_of(held, is_own=is_of_mqtt(held)),
    )


_PLAIN: Final = names.RESERVED | {MQTT_TOPIC, MQTT_QOS, _RETAIN, _CLIENT, MQTT_EMPTY, MARK, names.KEYS}
"""Properties that say nothing of what PUBLISH calls its properties."""


def _properties_of(held: dict[str, str], *, is_own: bool) -> Properties:
    if is_own and held.keys() <= _PLAIN:
        return NO_PROPERTIES
    values: dict[PropertyId, int | str | bytes] = {}
    if _FORMAT in held:
        values[PropertyId.PAYLOAD_FORMAT_INDICATOR] = int(held[_FORMAT] == "1")
    kind = held.get(MQTT_CONTENT_TYPE) if is_own else content_type_of(held)
    if kind is not None:
        values[PropertyId.CONTENT_TYPE] = unescape_text(kind) if is_own else kind
    place = held.get(MQTT_RESPONSE_TOPIC) if is_own else reply_place_of(held)
    if place is not None:
        place = unescape_text(place) if is_own else place
        if is_own or _is_topic_name(place):
            values[PropertyId.RESPONSE_TOPIC] = place
    correlation = correlation_of(held) if not is_own or MQTT_CORRELATION in held else None
    if correlation is not None:
        values[PropertyId.CORRELATION_DATA] = correlation
    user = _user_properties(held, is_own=is_own)
    return Properties(values, user) if values or user else NO_PROPERTIES


def _user_properties(held: Mapping[str, str], *, is_own: bool) -> list[tuple[str, str]]:
    if _USER in held:
        with suppress(ValueError, TypeError):
            return [(str(name), str(value)) for name, value in json.loads(unescape_text(held[_USER]))]
    if is_own:
        return [(name, unescape_text(value)) for name, value in held.items() if _is_shown(name)]
    event = own_attributes(held)
    user = [(name, value) for name, value in event.items() if name != "datacontenttype"]
    user += [
        (name, value)
        for name, value in held.items()
        if _is_shown(name) and name not in _FIELDS and not (event and name.startswith(ATTRIBUTE_PREFIX))
    ]
    user += [(name, held[name]) for name in SORTING_FIELDS if name in held]
    if names.TRACE_CONTEXT in held and TRACE_PARENT not in held:
        user.append((TRACE_PARENT, held[names.TRACE_CONTEXT]))
    return user


def _is_shown(name: str) -> bool:
    return name not in names.RESERVED and not name.startswith(_OWN) and name != ORIGIN_MQTT_TOPIC
