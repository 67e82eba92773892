"""An authentication of a client that takes more than its CONNECT."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.properties import Properties
from millstream.security.scram import ScramExchange

__all__ = ["PendingAuthentication"]


@dataclass(frozen=True, slots=True)
class PendingAuthentication:
    """Waits for the client's AUTH: its CONNECT, the exchange, and what CONNACK is to tell."""

    connect: Connect
    exchange: ScramExchange
    told: Properties
