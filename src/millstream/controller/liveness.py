"""Which replicas live: the ages of their heartbeats by one controller's monotonic clock. Pure: time comes in by calls.

Nothing of it is in the controllers' log: each controller counts what it hears, and one that becomes the leader begins
all ages at zero, so that its own start lets nobody die.
"""

from __future__ import annotations

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
    has_left: bool = False
    """Whether it said goodbye, so that it holds no lease any more."""


class Liveness:
    """The beats by broker name and controller id. Times are seconds of a clock that never goes back."""

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self.silence_s = silence_s
        self._beats: dict[tuple[str, int], Beat] = {}
        self._since_s = 0.0

    def restart(self, now_s: float) -> None:
        """This controller became the leader: all ages begin at zero, also those of replicas that it never heard."""
        self._since_s = now_s
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
            told.is_goodbye,
        )
        self._beats[told.name, told.broker_id] = beat
        return beat

    def lose(self, name: str, broker_id: int, *, has_left: bool = False) -> None:
        """The replica is dead until it is heard again; one that `has_left` holds no lease either."""
        beat = self._beats.setdefault((name, broker_id), Beat(self._since_s, self.silence_s))
        beat.is_gone = True
        beat.has_left = beat.has_left or has_left

    def forget(self, name: str, broker_id: int) -> None:
        """The replica is none any more."""
        self._beats.pop((name, broker_id), None)

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
        """Seconds until a lease of that length has ended which the replica's last heartbeat may have renewed."""
        beat = self._beats.get((name, broker_id))
        if beat is not None and beat.has_left:
            return 0.0
        heard_s = self._since_s if beat is None else beat.heard_s
        return max(heard_s + lease_s - now_s, 0.0)
