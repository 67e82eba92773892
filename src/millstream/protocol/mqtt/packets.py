"""Packets as values. They are not frozen, which would triple their cost; treat them as immutable."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = [
    "Acknowledgement",
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "Packet",
    "Ping",
    "Publish",
    "Suback",
    "Subscribe",
    "TopicSubscription",
    "Unsuback",
    "Unsubscribe",
    "Will",
]


def _no_properties() -> Properties:
    return NO_PROPERTIES


@dataclass(slots=True)
class Will:
    """What the server publishes when the client goes without a word."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Connect:
    """The first packet of a client. `keep_alive_s` 0 turns the keep alive off."""

    client_id: str
    version: ProtocolVersion = ProtocolVersion.V5
    clean_start: bool = True
    keep_alive_s: int = 0
    user_name: str | None = None
    password: bytes | None = field(default=None, repr=False)
    will: Will | None = None
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Connack:
    """The answer. For clients of 3.1.1 `return_code` is what stands there, and `reason` is not sent."""

    session_present: bool = False
    reason: ReasonCode = ReasonCode.SUCCESS
    return_code: int = 0
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Publish:
    """A message. `packet_id` is 0 with QoS 0; `topic` is blank where a topic alias stands for it."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Acknowledgement:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    packet_type: PacketType
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class TopicSubscription:
    """One filter of SUBSCRIBE and its options (section 3.8.3.1)."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    """A wish for messages."""

    packet_id: int
    subscriptions: list[TopicSubscription]
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Suback:
    """One reason for each filter, in order."""

    packet_id: int
    reasons: list[ReasonCode]
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Unsubscribe:
    """The end of subscriptions."""

    packet_id: int
    topic_filters: list[str]
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Unsuback:
    """One reason for each filter, in order; clients of 3.1.1 get none."""

    packet_id: int
    reasons: list[ReasonCode]
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Ping:
    """PINGREQ or PINGRESP."""

    packet_type: PacketType


@dataclass(slots=True)
class Disconnect:
    """The last packet of either side."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Auth:
    """A step of an extended authentication."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=_no_properties)


Packet = (
    Connect
    | Connack
    | Publish
    | Acknowledgement
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Ping
    | Disconnect
    | Auth
)
