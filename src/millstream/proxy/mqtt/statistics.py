"""Statistics of an MQTT port for `$SYS`, besides its traffic."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MqttStatistics"]


@dataclass(slots=True)
class MqttStatistics:
    """Counted since the start."""

    bytes_received: int = 0
    bytes_sent: int = 0
    takeovers: int = 0
    """Connections that gave way to another one of the same client id."""
    connects: int = 0
    """Clients that were let in."""
