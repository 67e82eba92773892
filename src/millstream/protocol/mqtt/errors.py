"""Errors for bad packets and refused operations, with the reason code for the peer."""

from __future__ import annotations

from millstream.model.errors import ConnectionFailed
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["PacketRefused"]


class PacketRefused(ConnectionFailed):
    """The peer broke the protocol, or went beyond a limit: it is told `reason`, and the connection ends."""

    def __init__(self, reason: ReasonCode, message: str) -> None:
        super().__init__("MQTT_PACKET", message)
        self.reason = reason
