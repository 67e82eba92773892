"""Decodes packets, for both sides of a connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from millstream.protocol.mqtt.errors import PacketRefused
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
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId, decode_properties
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.topics import check_topic_name
from millstream.protocol.mqtt.wire import FieldReader

__all__ = ["MAX_FILTERS", "decode_acknowledgement", "decode_packet", "decode_publish"]

MAX_FILTERS: Final = 100
"""Topic filters of one SUBSCRIBE or UNSUBSCRIBE at most."""

_KEPT_TOPICS: Final = 8192
_REASONS: Final = {int(reason): reason for reason in ReasonCode}
_V5: Final = ProtocolVersion.V5

# At hand, because in Python 3.11 the way from an enum's class to a member runs in Python.
_PUBLISH: Final = int(PacketType.PUBLISH)
_ACKNOWLEDGEMENTS: Final = frozenset((PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP))

# The flags beside the type (table 2-2). PUBLISH has its own.
_FLAGS: Final = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
_BY_FIRST_BYTE: Final = {
    packet << 4 | _FLAGS.get(packet, 0): packet
    for packet in PacketType
    if packet not in (PacketType.WILL, PacketType.PUBLISH)
}

_RETURN_CODES: Final = frozenset(
    (ReasonCode.SUCCESS, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2, ReasonCode.UNSPECIFIED_ERROR)
)


def decode_packet(first: int, body: bytes, version: ProtocolVersion) -> Packet:
    """The packet of `first`, its first byte, and what stands behind its length.

    PacketRefused with MALFORMED_PACKET, PROTOCOL_ERROR, TOPIC_NAME_INVALID, QUOTA_EXCEEDED; of CONNECT with
    UNSUPPORTED_PROTOCOL_VERSION.
    """
    if first >> 4 == _PUBLISH:
        return decode_publish(first, body, version)
    packet = _BY_FIRST_BYTE.get(first)
    if packet is None or (packet is PacketType.AUTH and version is not _V5):
        raise _unknown_packet(first, version)
    if packet in _ACKNOWLEDGEMENTS:
        return decode_acknowledgement(packet, body, version)
    reader = FieldReader(body)
    found = _DECODERS[packet](reader, version)
    reader.expect_end(packet.name)
    return found


def _unknown_packet(first: int, version: ProtocolVersion) -> PacketRefused:
    number = first >> 4
    if not number or (number == PacketType.AUTH and version is not _V5):
        return PacketRefused(ReasonCode.MALFORMED_PACKET, f"There is no packet type {number}.")
    packet = PacketType(number)
    words = f"{packet.name} has the flags {first & 0xF}, not {_FLAGS.get(packet, 0)}."
    return PacketRefused(ReasonCode.MALFORMED_PACKET, words)


@lru_cache(maxsize=_KEPT_TOPICS)
def _topic_of(data: bytes) -> str:
    """The topic name of its bytes; refusals are not kept."""
    topic = FieldReader(len(data).to_bytes(2, "big") + data).text()
    check_topic_name(topic)
    return topic


def decode_publish(first: int, body: bytes, version: ProtocolVersion) -> Publish:
    """A PUBLISH, which goes its own way because most packets are of this type."""
    qos = first >> 1 & 3
    if qos == 3:
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, "PUBLISH has both bits of QoS set.")
    if not qos and first & 8:
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, "PUBLISH has DUP set with QoS 0.")
    if len(body) < 2:
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, "PUBLISH has no topic.")
    position = 2 + (body[0] << 8 | body[1])
    if position > len(body):
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, "PUBLISH ends within its topic.")
    topic_bytes = body[2:position]
    topic = _topic_of(topic_bytes) if topic_bytes else ""
    packet_id = 0
    if qos:
        packet_id = int.from_bytes(body[position : position + 2], "big")
        position += 2
        if not packet_id or position > len(body):
            raise PacketRefused(ReasonCode.MALFORMED_PACKET, "PUBLISH has no packet identifier.")
    properties = NO_PROPERTIES
    if version is _V5:
        if position < len(body) and not body[position]:
            position += 1
        else:
            reader = FieldReader(body, position)
            properties = _message_properties(reader, PacketType.PUBLISH)
            position = reader.position
    elif not topic:
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, "PUBLISH has no topic.")
    return Publish(topic, body[position:], qos, bool(first & 1), bool(first & 8), packet_id, properties)


def _message_properties(reader: FieldReader, packet: PacketType) -> Properties:
    """The properties of PUBLISH or of a will, whose response topic has no wildcards [MQTT-3.3.2-14]."""
    properties = decode_properties(reader, packet)
    response = properties.text(PropertyId.RESPONSE_TOPIC)
    if response is not None and ("+" in response or "#" in response):
        raise PacketRefused(ReasonCode.PROTOCOL_ERROR, f"The response topic {response[:80]!r} has wildcards.")
    return properties


def decode_acknowledgement(packet: PacketType, body: bytes, version: ProtocolVersion) -> Acknowledgement:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP. The reason may be left out, and so may the properties (section 3.4.2)."""
    if len(body) == 2:
        packet_id = body[0] << 8 | body[1]
        if packet_id:
            return Acknowledgement(packet, packet_id)
    reader = FieldReader(body)
    packet_id = _packet_id(reader)
    reason, properties = ReasonCode.SUCCESS, NO_PROPERTIES
    if version is _V5 and reader.left:
        reason = _reason(reader)
        properties = _late_properties(reader, packet)
    reader.expect_end(packet.name)
    return Acknowledgement(packet, packet_id, reason, properties)


def _packet_id(reader: FieldReader) -> int:
    packet_id = reader.short()
    if not packet_id:
        raise PacketRefused(ReasonCode.PROTOCOL_ERROR, "The packet identifier is 0.")
    return packet_id


def _reason(reader: FieldReader) -> ReasonCode:
    number = reader.byte()
    reason = _REASONS.get(number)
    if reason is None:
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, f"There is no reason code {number}.")
    return reason


def _properties(reader: FieldReader, packet: PacketType, version: ProtocolVersion) -> Properties:
    return decode_properties(reader, packet) if version is _V5 else NO_PROPERTIES


def _late_properties(reader: FieldReader, packet: PacketType) -> Properties:
    """Properties that may be left out, with their length, at the end of a packet."""
    return decode_properties(reader, packet) if reader.left else NO_PROPERTIES


def _version(reader: FieldReader) -> ProtocolVersion:
    name, number = reader.text(), reader.byte()
    try:
        version = ProtocolVersion(number)
    except ValueError:
        version = None
    if version is None or PROTOCOL_NAMES[version] != name:
        words = f"The protocol {name[:40]!r} with the version {number} is not known here."
        raise PacketRefused(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, words)
    return version


def _connect(reader: FieldReader, _version_before: ProtocolVersion) -> Connect:
    version = _version(reader)
    flags, keep_alive_s = reader.byte(), reader.short()
    has_will, qos = bool(flags & 4), flags >> 3 & 3
    if flags & 1 or qos == 3 or (not has_will and flags & 0x38):
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, f"CONNECT has the flags {flags:#04x}.")
    if version is not _V5 and flags & 0x40 and not flags & 0x80:
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, "CONNECT has a password and no user name.")
    properties = _properties(reader, PacketType.CONNECT, version)
    client_id = reader.text()
    will = _will(reader, version, qos, bool(flags & 0x20)) if has_will else None
    user_name = reader.text() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    return Connect(client_id, version, bool(flags & 2), keep_alive_s, user_name, password, will, properties)


def _will(reader: FieldReader, version: ProtocolVersion, qos: int, retain: bool) -> Will:
    properties = _message_properties(reader, PacketType.WILL) if version is _V5 else NO_PROPERTIES
    topic = reader.text()
    check_topic_name(topic)
    return Will(topic, reader.binary(), qos, retain, properties)


def _connack(reader: FieldReader, version: ProtocolVersion) -> Connack:
    flags = reader.byte()
    if flags > 1:
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, f"CONNACK has the flags {flags:#04x}.")
    if version is not _V5:
        return Connack(bool(flags), return_code=reader.byte())
    reason = _reason(reader)
    return Connack(bool(flags), reason, properties=decode_properties(reader, PacketType.CONNACK))


def _subscribe(reader: FieldReader, version: ProtocolVersion) -> Subscribe:
    packet_id = _packet_id(reader)
    properties = _properties(reader, PacketType.SUBSCRIBE, version)
    found: list[TopicSubscription] = []
    while reader.left:
        topic_filter, options = reader.text(), reader.byte()
        qos, handling = options & 3, options >> 4 & 3
        reserved = 0xC0 if version is _V5 else 0xFC
        if qos == 3 or options & reserved or handling == 3:
            code = ReasonCode.MALFORMED_PACKET if options & reserved or qos == 3 else ReasonCode.PROTOCOL_ERROR
            raise PacketRefused(code, f"SUBSCRIBE has the options {options:#04x}.")
        found.append(TopicSubscription(topic_filter, qos, bool(options & 4), bool(options & 8), handling))
        _check_filters(len(found), "SUBSCRIBE")
    _require_filters(found, "SUBSCRIBE")
    return Subscribe(packet_id, found, properties)


def _unsubscribe(reader: FieldReader, version: ProtocolVersion) -> Unsubscribe:
    packet_id = _packet_id(reader)
    properties = _properties(reader, PacketType.UNSUBSCRIBE, version)
    found: list[str] = []
    while reader.left:
        found.append(reader.text())
        _check_filters(len(found), "UNSUBSCRIBE")
    _require_filters(found, "UNSUBSCRIBE")
    return Unsubscribe(packet_id, found, properties)


def _check_filters(count: int, packet: str) -> None:
    if count > MAX_FILTERS:
        raise PacketRefused(ReasonCode.QUOTA_EXCEEDED, f"{packet} has more than {MAX_FILTERS} topic filters.")


def _require_filters(found: list[str] | list[TopicSubscription], packet: str) -> None:
    if not found:
        raise PacketRefused(ReasonCode.PROTOCOL_ERROR, f"{packet} has no topic filter.")


def _suback(reader: FieldReader, version: ProtocolVersion) -> Suback:
    packet_id = _packet_id(reader)
    properties = _properties(reader, PacketType.SUBACK, version)
    reasons = _reasons(reader)
    if version is not _V5 and not _RETURN_CODES.issuperset(reasons):
        # MQTT 3.1.1, section 3.9.3: all others are reserved.
        raise PacketRefused(ReasonCode.MALFORMED_PACKET, f"SUBACK has the return codes {[*map(int, reasons)]}.")
    return Suback(packet_id, reasons, properties)


def _unsuback(reader: FieldReader, version: ProtocolVersion) -> Unsuback:
    packet_id = _packet_id(reader)
    properties = _properties(reader, PacketType.UNSUBACK, version)
    return Unsuback(packet_id, _reasons(reader) if version is _V5 else [], properties)


def _reasons(reader: FieldReader) -> list[ReasonCode]:
    found = []
    while reader.left:
        found.append(_reason(reader))
    return found


def _disconnect(reader: FieldReader, version: ProtocolVersion) -> Disconnect:
    if version is not _V5 or not reader.left:
        return Disconnect()
    return Disconnect(_reason(reader), _late_properties(reader, PacketType.DISCONNECT))


def _auth(reader: FieldReader, _version_5: ProtocolVersion) -> Auth:
    if not reader.left:
        return Auth()
    return Auth(_reason(reader), _late_properties(reader, PacketType.AUTH))


_DECODERS: Final[dict[PacketType, Callable[[FieldReader, ProtocolVersion], Packet]]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda _reader, _version: Ping(PacketType.PINGREQ),
    PacketType.PINGRESP: lambda _reader, _version: Ping(PacketType.PINGRESP),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
