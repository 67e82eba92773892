"""Liveness of replicas: ages of heartbeats by a controller's monotonic clock. Pure: time is passed in.

Nothing of it is in the controllers' log: each controller counts what it hears, and one that becomes the leader begins
all ages at zero, so that its own start lets nobody die.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from millstream.protocol.remoting.administration.controller_requests import DEFAULT_PRIORITY, BrokerHeartbeat

__all__ = ["LONGEST_SILENCE_S", "SHORTEST_SILENCE_S", "SILENCE_S", "Beat", "Liveness"]

SILENCE_S: Final = 2.0
"""Seconds without a heartbeat after which a replica is dead that named no time of its own."""

SHORTEST_SILENCE_S: Final = 0.5
"""Seconds that a replica may name at least."""

LONGEST_SILENCE_S: Final = 60.0
"""Seconds that a replica may name at most."""

_MS: Final = 1000


@dataclass(slots=True)
class Beat:
    """The last heartbeat of a replica. Offsets are bytes of its log, `epoch` is that of the log's last entry."""

    heard_s: float
    silence_s: float
    epoch: int = 0
    max_offset: int = 0
    confirm_offset: int = 0
    priority: int = DEFAULT_PRIORITY
    is_gone: bool = False
    """Whether the replica said goodbye, or its port is closed."""
    is_damaged: bool = False
    """Whether its log lacks bytes that it should have."""


class Liveness:
    """The beats by broker name and controller id. Times are seconds of a clock that never goes back."""

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self.silence_s = silence_s
        self._beats: dict[tuple[str, int], Beat] = {}
        self._leases: dict[tuple[str, int], float] = {}
        """When a lease was last given; -inf where it is known that there is none any more."""
        self._since_s = 0.0

    def restart(self, now_s: float) -> None:
        """This controller became the leader: all ages begin at zero, also those of replicas that it never heard."""
        self._since_s = now_s
        # Also that there was none is out of date: another leader may have given one meanwhile.
        self._leases.clear()
        for beat in self._beats.values():
            beat.heard_s = now_s

    def note(self, told: BrokerHeartbeat, now_s: float) -> Beat:
        """Take a heartbeat; a goodbye is the last one."""
        silence_s = told.timeout_ms / _MS if told.timeout_ms > 0 else self.silence_s
        beat = Beat(
            now_s,
            min(max(silence_s, SHORTEST_SILENCE_S), LONGEST_SILENCE_S),
            told.epoch,
            told.max_offset,
            told.confirm_offset,
            told.priority,
            told.is_goodbye,
            told.is_damaged,
        )
        self._beats[told.name, told.broker_id] = beat
        if told.is_goodbye:
            self.end_lease(told.name, told.broker_id)
        return beat

    def lose(self, name: str, broker_id: int) -> None:
        """The replica is dead until it is heard again."""
        beat = self._beats.setdefault((name, broker_id), Beat(self._since_s, self.silence_s))
        beat.is_gone = True

    def forget(self, name: str, broker_id: int) -> None:
        """The replica is none any more."""
        self._beats.pop((name, broker_id), None)
        self._leases.pop((name, broker_id), None)

    def grant_lease(self, name: str, broker_id: int, now_s: float) -> None:
        """The replica gets a lease, or a longer one."""
        self._leases[name, broker_id] = now_s

    def end_lease(self, name: str, broker_id: int) -> None:
        """The replica said goodbye, or its process has just started: it holds none."""
        self._leases[name, broker_id] = -math.inf

    def find(self, name: str, broker_id: int) -> Beat | None:
        """The last beat of a replica; None before the first one."""
        return self._beats.get((name, broker_id))

    def is_alive(self, name: str, broker_id: int, now_s: float) -> bool:
        """Whether the replica was heard in time, or its time since this controller's start is not over."""
        beat = self._beats.get((name, broker_id))
        if beat is None:
            return now_s - self._since_s < self.silence_s
        return not beat.is_gone and now_s - beat.heard_s < beat.silence_s

    def is_heard(self, name: str, broker_id: int, now_s: float) -> bool:
        """Whether the replica lives and has said how far its log goes."""
        return (name, broker_id) in self._beats and self.is_alive(name, broker_id, now_s)

    def lease_left_s(self, name: str, broker_id: int, lease_s: float, now_s: float) -> float:
        """Seconds until a lease of that length has ended which the replica may hold.

        Who led before this controller may have given one to anybody until then.
        """
        granted_s = self._leases.get((name, broker_id), self._since_s)
        return max(granted_s + lease_s - now_s, 0.0)
