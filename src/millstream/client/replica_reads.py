"""Reading from replicas: which one a queue is read from, and which ones are left alone for a while."""

from __future__ import annotations

from enum import Enum
from typing import Final

from millstream.protocol.remoting.bodies import BrokerData

__all__ = ["AVOID_S", "MAX_AVOIDED", "ReadFrom", "ReadableReplicas"]

AVOID_S: Final = 10.0
"""Seconds for which nobody is asked who did not answer, or refused to be read from, where another one can be asked."""

MAX_AVOIDED: Final = 1024
"""Addresses that are left alone at a time at most."""

_MASTER_ID: Final = 0


class ReadFrom(Enum):
    """Who is asked first for messages. Either way a reader gets what is confirmed, by the same offsets."""

    MASTER = "master"
    REPLICA = "replica"
    """A replica; the master where none answers, or the replica does not have what is asked for."""


class ReadableReplicas:
    """Times are seconds of a clock that never goes back, the caller's own."""

    def __init__(self) -> None:
        self._avoided: dict[str, float] = {}

    def of(self, broker: BrokerData, queue_id: int, now_s: float) -> list[str]:
        """The addresses to ask, in this order; queues are spread over the replicas, and each stays at its own."""
        addresses = [place for number, place in sorted(broker.broker_addrs.items()) if number != _MASTER_ID]
        master = broker.broker_addrs.get(_MASTER_ID)
        usable = [place for place in addresses if place != master and not self.is_avoided(place, now_s)]
        first = queue_id % len(usable) if usable else 0
        return usable[first:] + usable[:first]

    def avoid(self, address: str, now_s: float) -> None:
        """It did not answer, or lets nobody read."""
        self._avoided.pop(address, None)
        self._avoided[address] = now_s + AVOID_S
        if len(self._avoided) > MAX_AVOIDED:
            del self._avoided[next(iter(self._avoided))]

    def is_avoided(self, address: str, now_s: float) -> bool:
        """Whether it is left alone now."""
        return now_s < self._avoided.get(address, now_s)
