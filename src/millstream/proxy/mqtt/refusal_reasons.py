"""The reasons of MQTT for refusals: of a CONNECT, and of what brokers refuse."""

from __future__ import annotations

from typing import Final

from millstream.model.errors import AccessRefused, ConnectionFailed, MillstreamError, NameRefused
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["ConnectRefused", "reason_of"]

_TOPIC_REASONS: Final = frozenset(("TOPIC_NOT_FOUND", "ILLEGAL_TOPIC", "FORBIDDEN"))
_TOO_LARGE: Final = frozenset(("BODY_TOO_LARGE", "PROPERTIES_TOO_LARGE"))


class ConnectRefused(AccessRefused):
    """A CONNECT that is answered with `reason`."""

    def __init__(self, reason: ReasonCode, message: str) -> None:
        super().__init__("MQTT_CONNECT", message)
        self.reason = reason


def reason_of(error: MillstreamError) -> ReasonCode:
    """The reason code that comes closest to an error of the brokers."""
    if isinstance(error, PacketRefused):
        return error.reason
    if isinstance(error, AccessRefused):
        return ReasonCode.MESSAGE_RATE_TOO_HIGH if error.name == "CLIENT_THROTTLED" else ReasonCode.NOT_AUTHORIZED
    if isinstance(error, NameRefused) and error.name in _TOPIC_REASONS:
        return ReasonCode.TOPIC_NAME_INVALID
    if error.name in _TOO_LARGE:
        return ReasonCode.PACKET_TOO_LARGE
    if isinstance(error, ConnectionFailed):
        return ReasonCode.UNSPECIFIED_ERROR
    return ReasonCode.QUOTA_EXCEEDED
