"""Encodes packets, for both sides of a connection."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from millstream.protocol.mqtt.packet_types import PROTOCOL_NAMES, PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Publish,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from millstream.protocol.mqtt.properties import Properties, encode_properties
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.wire import encode_binary, encode_text, encode_variable

__all__ = [
    "PINGRESP",
    "encode_acknowledgement",
    "encode_packet",
    "encode_publish",
    "encode_publish_head",
    "encode_success",
]

_V5: Final = ProtocolVersion.V5
_KEPT_TOPICS: Final = 8192

PINGRESP: Final = b"\xd0\0"
"""The packet, which is always the same."""

_SUCCESS: Final = {
    PacketType.PUBACK: b"\x40\x02",
    PacketType.PUBREC: b"\x50\x02",
    PacketType.PUBREL: b"\x62\x02",
    PacketType.PUBCOMP: b"\x70\x02",
}


_topic_field = lru_cache(maxsize=_KEPT_TOPICS)(encode_text)


def encode_packet(packet: Packet, version: ProtocolVersion) -> bytes:
    """The bytes of a packet. MALFORMED_PACKET where a text has more than 65,535 bytes."""
    match packet:
        case Publish():
            return encode_publish(packet, version)
        case Acknowledgement():
            return encode_acknowledgement(packet, version)
        case Ping():
            return bytes((packet.packet_type << 4, 0))
        case Connect():
            return _frame(0x10, _connect(packet))
        case Connack():
            return _frame(0x20, _connack(packet, version))
        case Subscribe():
            return _frame(0x82, _subscribe(packet, version))
        case Suback() | Unsuback():
            return _frame(0x90 if isinstance(packet, Suback) else 0xB0, _answers(packet, version))
        case Unsubscribe():
            return _frame(0xA2, _unsubscribe(packet, version))
        case Disconnect():
            return _frame(0xE0, _end(packet, version))
        case Auth():
            return _frame(0xF0, _end(packet, version))


def encode_publish(packet: Publish, version: ProtocolVersion) -> bytes:
    """The bytes of a PUBLISH."""
    parts = [encode_text(packet.topic)]
    if packet.qos:
        parts.append(packet.packet_id.to_bytes(2, "big"))
    if version is _V5:
        parts.append(encode_properties(packet.properties))
    parts.append(packet.payload)
    body = b"".join(parts)
    first = 0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain
    return bytes((first,)) + encode_variable(len(body)) + body


def encode_publish_head(topic: str, rest_bytes: int, qos: int, *, retain: bool) -> bytes:
    """The bytes of a PUBLISH up to its packet identifier, if it has one; properties and payload have `rest_bytes`."""
    text = _topic_field(topic)
    length = len(text) + rest_bytes + (2 if qos else 0)
    return bytes((0x30 | qos << 1 | retain,)) + encode_variable(length) + text


def encode_success(packet_type: PacketType, packet_id: int) -> bytes:
    """The bytes of a PUBACK, PUBREC, PUBREL or PUBCOMP that says nothing but that all is well."""
    return _SUCCESS[packet_type] + packet_id.to_bytes(2, "big")


def encode_acknowledgement(packet: Acknowledgement, version: ProtocolVersion) -> bytes:
    """The bytes of a PUBACK, PUBREC, PUBREL or PUBCOMP, as short as they may be."""
    has_properties = bool(packet.properties.values or packet.properties.user)
    if version is not _V5 or (packet.reason is ReasonCode.SUCCESS and not has_properties):
        return encode_success(packet.packet_type, packet.packet_id)
    body = packet.packet_id.to_bytes(2, "big") + bytes((packet.reason,))
    if has_properties:
        body += encode_properties(packet.properties)
    return _SUCCESS[packet.packet_type][:1] + encode_variable(len(body)) + body


def _frame(first: int, parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    return bytes((first,)) + encode_variable(len(body)) + body


def _properties(properties: Properties, version: ProtocolVersion) -> bytes:
    return encode_properties(properties) if version is _V5 else b""


def _connect(packet: Connect) -> list[bytes]:
    version, will = packet.version, packet.will
    flags = packet.clean_start << 1 | (packet.user_name is not None) << 7 | (packet.password is not None) << 6
    parts = [encode_text(PROTOCOL_NAMES[version]), bytes((version,))]
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    parts += [bytes((flags,)), packet.keep_alive_s.to_bytes(2, "big"), _properties(packet.properties, version)]
    parts.append(encode_text(packet.client_id))
    if will is not None:
        parts += _will(will, version)
    if packet.user_name is not None:
        parts.append(encode_text(packet.user_name))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    return parts


def _will(will: Will, version: ProtocolVersion) -> list[bytes]:
    return [_properties(will.properties, version), encode_text(will.topic), encode_binary(will.payload)]


def _connack(packet: Connack, version: ProtocolVersion) -> list[bytes]:
    if version is not _V5:
        return [bytes((packet.session_present, packet.return_code))]
    return [bytes((packet.session_present, packet.reason)), encode_properties(packet.properties)]


def _subscribe(packet: Subscribe, version: ProtocolVersion) -> list[bytes]:
    parts = [packet.packet_id.to_bytes(2, "big"), _properties(packet.properties, version)]
    for one in packet.subscriptions:
        parts += [encode_text(one.topic_filter), bytes((_options(one),))]
    return parts


def _options(one: TopicSubscription) -> int:
    return one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4


def _unsubscribe(packet: Unsubscribe, version: ProtocolVersion) -> list[bytes]:
    parts = [packet.packet_id.to_bytes(2, "big"), _properties(packet.properties, version)]
    return parts + [encode_text(one) for one in packet.topic_filters]


def _answers(packet: Suback | Unsuback, version: ProtocolVersion) -> list[bytes]:
    reasons = bytes(packet.reasons)
    if version is not _V5:
        # Clients of 3.1.1 know one code of failure, and none in UNSUBACK.
        reasons = bytes(min(reason, 0x80) for reason in reasons) if isinstance(packet, Suback) else b""
    return [packet.packet_id.to_bytes(2, "big"), _properties(packet.properties, version), reasons]


def _end(packet: Disconnect | Auth, version: ProtocolVersion) -> list[bytes]:
    has_properties = bool(packet.properties.values or packet.properties.user)
    if version is not _V5 or (packet.reason is ReasonCode.SUCCESS and not has_properties):
        return []
    parts = [bytes((packet.reason,))]
    return [*parts, encode_properties(packet.properties)] if has_properties else parts
