"""Plain numbers of an MQTT port, for metrics and `$SYS`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MqttStatistics"]


@dataclass(slots=True)
class MqttStatistics:
    """Counted since the start."""

    messages_received: int = 0
    """PUBLISH packets that clients sent."""
    messages_sent: int = 0
    """PUBLISH packets that clients were sent."""
    bytes_received: int = 0
    bytes_sent: int = 0
    refused: int = 0
    """Publishes, subscriptions and connections that were not allowed or not possible."""
    dropped: int = 0
    """Messages that a client did not get: it did not read, or they were larger than it takes."""
    takeovers: int = 0
    """Connections that gave way to another one of the same client id."""
    connects: int = 0
    """Clients that were let in."""
