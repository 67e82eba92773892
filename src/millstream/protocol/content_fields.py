"""What several protocols say of a message in fields of their own, found in its record whoever sent it. Pure.

MQTT, AMQP and HTTP store such a field under a name of theirs, so that each gets its own message back as it was. Here
stands how the others find it: the content type, correlation data, where a reply goes to, a body of no bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from millstream.model import properties as names
from millstream.model.property_text import unescape_text
from millstream.model.routing.routes import MQTT_TOPIC

__all__ = [
    "AMQP_CORRELATION",
    "CONTENT_FIELDS",
    "CONTENT_TYPE",
    "EMPTY_BODY",
    "EVENT_CONTENT_TYPE",
    "MAX_STANDING_BYTES",
    "MQTT_CONTENT_TYPE",
    "MQTT_CORRELATION",
    "MQTT_EMPTY",
    "MQTT_QOS",
    "MQTT_RESPONSE_TOPIC",
    "REPLY_TO",
    "SORTING_FIELDS",
    "TRACE_PARENT",
    "content_type_of",
    "correlation_of",
    "filled_body",
    "is_of_mqtt",
    "reply_place_of",
]

CONTENT_TYPE: Final = "content_type"
"""The property with the content type of a message of AMQP, and of one of HTTP that is no event."""

MQTT_CONTENT_TYPE: Final = "mqtt_content_type"
"""The same of MQTT, as `property_text` escapes it."""

EVENT_CONTENT_TYPE: Final = "CE_datacontenttype"
"""The same of an event."""

MQTT_CORRELATION: Final = "mqtt_correlation"
"""The property with the correlation data of MQTT, base64."""

AMQP_CORRELATION: Final = "amqp_correlation"
"""The property with the correlation id of AMQP."""

MQTT_RESPONSE_TOPIC: Final = "mqtt_response_topic"
"""The property with the response topic of MQTT, as `property_text` escapes it."""

REPLY_TO: Final = "reply_to"
"""The property with AMQP's address for replies."""

MQTT_EMPTY: Final = "mqtt_empty"
"""In a message of MQTT without a payload: no topic but a compacted one takes a record without a body."""

EMPTY_BODY: Final = "IS_EMPTY_MSG"
"""The same of AMQP and of RocketMQ's own MQTT proxy: `true`."""

MQTT_QOS: Final = "mqtt_qos"
"""The property with the QoS by which a client of MQTT published a message."""

TRACE_PARENT: Final = "traceparent"
"""The name of the trace context in headers and user properties. Source: W3C Trace Context, its bindings of MQTT and
AMQP."""

CONTENT_FIELDS: Final = frozenset(
    (
        CONTENT_TYPE,
        MQTT_CONTENT_TYPE,
        EVENT_CONTENT_TYPE,
        MQTT_CORRELATION,
        AMQP_CORRELATION,
        MQTT_RESPONSE_TOPIC,
        REPLY_TO,
        EMPTY_BODY,
        MQTT_EMPTY,
    )
)
"""The names that a protocol with fields of its own for them does not show as user properties."""

SORTING_FIELDS: Final = (names.KEYS, names.TAGS, names.MESSAGE_GROUP, names.PRIORITY)
"""What RocketMQ sorts messages by: shown as user properties, by these names, where a protocol has no other place."""

MAX_STANDING_BYTES: Final = 1
"""Bytes of what stands for a body of none, at most."""


def is_of_mqtt(held: Mapping[str, str]) -> bool:
    """Whether a client of MQTT published the message, so that its texts are as `property_text` escapes them."""
    return MQTT_QOS in held and MQTT_TOPIC in held


def content_type_of(held: Mapping[str, str]) -> str | None:
    """The content type that the sender named, or None."""
    content_type = held.get(MQTT_CONTENT_TYPE)
    if content_type is not None:
        return unescape_text(content_type)
    return held.get(EVENT_CONTENT_TYPE) or held.get(CONTENT_TYPE)


def correlation_of(held: Mapping[str, str]) -> bytes | None:
    """What a reply has to repeat, or None."""
    correlation = held.get(MQTT_CORRELATION)
    if correlation is not None:
        with suppress(ValueError):
            return base64.b64decode(correlation)
    text = held.get(AMQP_CORRELATION)
    return None if text is None else text.encode()


def reply_place_of(held: Mapping[str, str]) -> str | None:
    """Where the sender wants a reply: a topic of MQTT, a queue of AMQP; or None."""
    response_topic = held.get(MQTT_RESPONSE_TOPIC)
    return held.get(REPLY_TO) if response_topic is None else unescape_text(response_topic)


def filled_body(held: Mapping[str, str], body: bytes) -> bytes:
    """The body as its sender gave it: what stands for a body of no bytes is none."""
    if len(body) <= MAX_STANDING_BYTES and (MQTT_EMPTY in held or held.get(EMPTY_BODY) == "true"):
        return b""
    return body
