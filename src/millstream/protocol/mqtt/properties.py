"""Properties of MQTT 5.0 packets (section 2.2.2): where each is allowed, and its encoding."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, NoReturn

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.packet_types import PacketType
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.wire import FieldReader, encode_binary, encode_text, encode_variable

__all__ = [
    "MAX_USER_PROPERTIES",
    "NO_PROPERTIES",
    "Properties",
    "PropertyId",
    "decode_properties",
    "encode_properties",
]

MAX_USER_PROPERTIES: Final = 128
"""User properties of one packet at most, as of a message that comes over gRPC."""


class PropertyId(IntEnum):
    """The identifiers (table 2-4)."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


class _Kind(Enum):
    FLAG = "a byte of 0 or 1"
    SHORT = "two bytes"
    LONG = "four bytes"
    VARIABLE = "a variable byte integer"
    TEXT = "a text"
    BINARY = "binary data"
    PAIR = "two texts"


_P, _T = PropertyId, PacketType
_ACKS: Final = (_T.PUBACK, _T.PUBREC, _T.PUBREL, _T.PUBCOMP, _T.SUBACK, _T.UNSUBACK)
_PLACES: Final[dict[PropertyId, tuple[_Kind, frozenset[PacketType]]]] = {
    _P.PAYLOAD_FORMAT_INDICATOR: (_Kind.FLAG, frozenset((_T.PUBLISH, _T.WILL))),
    _P.MESSAGE_EXPIRY_INTERVAL: (_Kind.LONG, frozenset((_T.PUBLISH, _T.WILL))),
    _P.CONTENT_TYPE: (_Kind.TEXT, frozenset((_T.PUBLISH, _T.WILL))),
    _P.RESPONSE_TOPIC: (_Kind.TEXT, frozenset((_T.PUBLISH, _T.WILL))),
    _P.CORRELATION_DATA: (_Kind.BINARY, frozenset((_T.PUBLISH, _T.WILL))),
    _P.SUBSCRIPTION_IDENTIFIER: (_Kind.VARIABLE, frozenset((_T.PUBLISH, _T.SUBSCRIBE))),
    _P.SESSION_EXPIRY_INTERVAL: (_Kind.LONG, frozenset((_T.CONNECT, _T.CONNACK, _T.DISCONNECT))),
    _P.ASSIGNED_CLIENT_IDENTIFIER: (_Kind.TEXT, frozenset((_T.CONNACK,))),
    _P.SERVER_KEEP_ALIVE: (_Kind.SHORT, frozenset((_T.CONNACK,))),
    _P.AUTHENTICATION_METHOD: (_Kind.TEXT, frozenset((_T.CONNECT, _T.CONNACK, _T.AUTH))),
    _P.AUTHENTICATION_DATA: (_Kind.BINARY, frozenset((_T.CONNECT, _T.CONNACK, _T.AUTH))),
    _P.REQUEST_PROBLEM_INFORMATION: (_Kind.FLAG, frozenset((_T.CONNECT,))),
    _P.WILL_DELAY_INTERVAL: (_Kind.LONG, frozenset((_T.WILL,))),
    _P.REQUEST_RESPONSE_INFORMATION: (_Kind.FLAG, frozenset((_T.CONNECT,))),
    _P.RESPONSE_INFORMATION: (_Kind.TEXT, frozenset((_T.CONNACK,))),
    _P.SERVER_REFERENCE: (_Kind.TEXT, frozenset((_T.CONNACK, _T.DISCONNECT))),
    _P.REASON_STRING: (_Kind.TEXT, frozenset((*_ACKS, _T.CONNACK, _T.DISCONNECT, _T.AUTH))),
    _P.RECEIVE_MAXIMUM: (_Kind.SHORT, frozenset((_T.CONNECT, _T.CONNACK))),
    _P.TOPIC_ALIAS_MAXIMUM: (_Kind.SHORT, frozenset((_T.CONNECT, _T.CONNACK))),
    _P.TOPIC_ALIAS: (_Kind.SHORT, frozenset((_T.PUBLISH,))),
    _P.MAXIMUM_QOS: (_Kind.FLAG, frozenset((_T.CONNACK,))),
    _P.RETAIN_AVAILABLE: (_Kind.FLAG, frozenset((_T.CONNACK,))),
    _P.USER_PROPERTY: (_Kind.PAIR, frozenset(PacketType)),
    _P.MAXIMUM_PACKET_SIZE: (_Kind.LONG, frozenset((_T.CONNECT, _T.CONNACK))),
    _P.WILDCARD_SUBSCRIPTION_AVAILABLE: (_Kind.FLAG, frozenset((_T.CONNACK,))),
    _P.SUBSCRIPTION_IDENTIFIER_AVAILABLE: (_Kind.FLAG, frozenset((_T.CONNACK,))),
    _P.SHARED_SUBSCRIPTION_AVAILABLE: (_Kind.FLAG, frozenset((_T.CONNACK,))),
}
_NEVER_ZERO: Final = frozenset((_P.RECEIVE_MAXIMUM, _P.MAXIMUM_PACKET_SIZE, _P.SUBSCRIPTION_IDENTIFIER))


@dataclass(slots=True)
class Properties:
    """What a packet carries: single values by identifier, and the two properties that may stand several times, in
    their order [MQTT-3.3.2-18]."""

    values: dict[PropertyId, int | str | bytes] = field(default_factory=dict)
    user: list[tuple[str, str]] = field(default_factory=list)
    subscription_ids: list[int] = field(default_factory=list)

    def number(self, name: PropertyId, default: int) -> int:
        """A numeric property, or the default."""
        value = self.values.get(name, default)
        assert isinstance(value, int)
        return value

    def text(self, name: PropertyId) -> str | None:
        """A text property, or None."""
        value = self.values.get(name)
        assert value is None or isinstance(value, str)
        return value

    def binary(self, name: PropertyId) -> bytes | None:
        """A binary property, or None."""
        value = self.values.get(name)
        assert value is None or isinstance(value, bytes)
        return value


NO_PROPERTIES: Final = Properties()
"""Stands for a packet without any; nobody changes it."""


def decode_properties(reader: FieldReader, packet: PacketType) -> Properties:
    """The properties of a packet of that type, whose length comes first.

    MALFORMED_PACKET for an unknown identifier or one that has no place there, PROTOCOL_ERROR for one that stands twice
    or has a value out of its range.
    """
    size_bytes = reader.variable()
    if not size_bytes:
        return NO_PROPERTIES
    part = reader.part(size_bytes)
    found = Properties()
    while part.left:
        number = part.variable()
        place = _PLACES.get(number)  # type: ignore[call-overload]  # an IntEnum is found by its number
        if place is None or packet not in place[1]:
            raise PacketRefused(ReasonCode.MALFORMED_PACKET, f"{packet.name} may not have the property {number}.")
        _read_one(part, PropertyId(number), place[0], packet, found)
    return found


def _read_one(part: FieldReader, name: PropertyId, kind: _Kind, packet: PacketType, found: Properties) -> None:
    if kind is _Kind.PAIR:
        if len(found.user) >= MAX_USER_PROPERTIES:
            words = f"{packet.name} has more than {MAX_USER_PROPERTIES} user properties."
            raise PacketRefused(ReasonCode.QUOTA_EXCEEDED, words)
        found.user.append((part.text(), part.text()))
        return
    value = _read_value(part, kind)
    if kind is _Kind.FLAG and value not in (0, 1):
        _refuse_value(name, value)
    if name in _NEVER_ZERO and not value:
        _refuse_value(name, value)
    if name is PropertyId.SUBSCRIPTION_IDENTIFIER:
        assert isinstance(value, int)
        if packet is PacketType.SUBSCRIBE and found.subscription_ids:
            _refuse_twice(name, packet)
        found.subscription_ids.append(value)
        return
    if name in found.values:
        _refuse_twice(name, packet)
    found.values[name] = value


def _read_value(part: FieldReader, kind: _Kind) -> int | str | bytes:
    match kind:
        case _Kind.FLAG:
            return part.byte()
        case _Kind.SHORT:
            return part.short()
        case _Kind.LONG:
            return part.long()
        case _Kind.VARIABLE:
            return part.variable()
        case _Kind.TEXT:
            return part.text()
        case _:
            return part.binary()


def _refuse_value(name: PropertyId, value: int | str | bytes) -> NoReturn:
    raise PacketRefused(ReasonCode.PROTOCOL_ERROR, f"The property {name.name} may not be {value!r}.")


def _refuse_twice(name: PropertyId, packet: PacketType) -> NoReturn:
    raise PacketRefused(ReasonCode.PROTOCOL_ERROR, f"{packet.name} has the property {name.name} twice.")


def encode_properties(properties: Properties) -> bytes:
    """The properties behind their length."""
    if not properties.values and not properties.user and not properties.subscription_ids:
        return b"\0"
    parts = [_encode_one(name, value) for name, value in properties.values.items()]
    parts += [b"\x0b" + encode_variable(number) for number in properties.subscription_ids]
    parts += [b"\x26" + encode_text(name) + encode_text(value) for name, value in properties.user]
    data = b"".join(parts)
    return encode_variable(len(data)) + data


def _encode_one(name: PropertyId, value: int | str | bytes) -> bytes:
    head = bytes((name,))
    if isinstance(value, str):
        return head + encode_text(value)
    if isinstance(value, bytes):
        return head + encode_binary(value)
    kind = _PLACES[name][0]
    if kind is _Kind.VARIABLE:
        return head + encode_variable(value)
    size_bytes = {_Kind.FLAG: 1, _Kind.SHORT: 2}.get(kind, 4)
    return head + value.to_bytes(size_bytes, "big")
