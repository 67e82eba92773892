"""Packet types, protocol versions and QoS levels."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["PROTOCOL_NAMES", "PacketType", "ProtocolVersion"]


class PacketType(IntEnum):
    """The type in the first four bits of a packet (MQTT 5.0, table 2-1). WILL stands for the will's own properties."""

    WILL = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class ProtocolVersion(IntEnum):
    """The number that CONNECT gives."""

    V3_1 = 3
    V3_1_1 = 4
    V5 = 5


PROTOCOL_NAMES: Final = {ProtocolVersion.V3_1: "MQIsdp", ProtocolVersion.V3_1_1: "MQTT", ProtocolVersion.V5: "MQTT"}
"""The name that goes with each version."""
