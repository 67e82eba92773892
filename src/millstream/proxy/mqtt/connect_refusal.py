"""Validates a CONNECT and computes the session's expiry."""

from __future__ import annotations

from typing import Final

from millstream.model.errors import AccessRefused
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.properties import PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["MAX_SESSION_EXPIRY_S", "ConnectRefused", "session_expiry_s"]

MAX_SESSION_EXPIRY_S: Final = 7 * 24 * 3600
"""Seconds that a session lives on without a connection at most; CONNACK says so."""


class ConnectRefused(AccessRefused):
    """A CONNECT that is answered with `reason`."""

    def __init__(self, reason: ReasonCode, message: str) -> None:
        super().__init__("MQTT_CONNECT", message)
        self.reason = reason


def session_expiry_s(connect: Connect) -> int:
    """How long the session lives on without a connection, as the client wants it and the server allows."""
    if connect.version is not ProtocolVersion.V5:
        return 0 if connect.clean_start else MAX_SESSION_EXPIRY_S
    return min(connect.properties.number(PropertyId.SESSION_EXPIRY_INTERVAL, 0), MAX_SESSION_EXPIRY_S)
