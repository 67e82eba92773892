"""Sessions whose connections were cut a moment ago, kept as they are for clients that come right back. Pure.

Nothing is stored of a parked session: its record still names the connection that was cut. A client that comes back to
this proxy goes on with it once it is certain that nobody claimed it meanwhile.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.protocol.mqtt.packets import Connect
from millstream.proxy.mqtt.client_link import ClientLink
from millstream.proxy.mqtt.session import MqttSession, session_expiry_s

__all__ = [
    "MAX_PARKED",
    "MAX_PARKED_ENDED",
    "MIN_PARKED_EXPIRY_S",
    "PARK_S",
    "ParkedSessions",
    "can_go_on",
    "can_park",
]

PARK_S: Final = 10.0
"""Seconds after a cut for which a session waits for its client as it is; then it is stored that the client is away."""

MIN_PARKED_EXPIRY_S: Final = 60
"""Seconds that a session has to live on without a connection, so that it waits like that."""

MAX_PARKED: Final = 20_000
"""Sessions of a port that wait like that at most; of further ones it is stored at once that their clients are away."""

MAX_PARKED_ENDED: Final = 2_000
"""Sessions whose clients did not come back of which that is stored in one second at most."""


class _Parked(NamedTuple):
    parked_s: float
    away_ms: int


class ParkedSessions:
    """The keys of parked sessions, in the order in which they were parked, with since when their clients are away."""

    def __init__(self) -> None:
        self._parked: dict[str, _Parked] = {}
        self._is_open = True

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def has_room(self) -> bool:
        """Whether one more may wait."""
        return self._is_open and len(self._parked) < MAX_PARKED

    def add(self, key: str, now_s: float, away_ms: int) -> None:
        """A session waits for its client, from `now_s` on by the monotonic clock."""
        self._parked[key] = _Parked(now_s, away_ms)

    def pop(self, key: str) -> int | None:
        """Since when the client of a session is away, which waits no more; None where it did not."""
        parked = self._parked.pop(key, None)
        return None if parked is None else parked.away_ms

    def pop_due(self, now_s: float) -> dict[str, int]:
        """The same of those that waited for long enough; some of them, where they are many."""
        due: dict[str, int] = {}
        for key, parked in self._parked.items():
            if now_s - parked.parked_s < PARK_S or len(due) >= MAX_PARKED_ENDED:
                break
            due[key] = parked.away_ms
        for key in due:
            del self._parked[key]
        return due

    def close(self) -> dict[str, int]:
        """The same of all; none waits from now on."""
        self._is_open = False
        parked, self._parked = self._parked, {}
        return {key: one.away_ms for key, one in parked.items()}


def can_park(session: MqttSession, connection: ClientLink) -> bool:
    """Whether nothing is left to do for a session whose connection is gone, but for its record: no message is under
    way in any direction, no will is due, and others share no subscription with it."""
    ids, queue = session.packet_ids, session.queue
    return (
        connection.was_cut
        and session.is_claimed
        and session.expiry_s >= MIN_PARKED_EXPIRY_S
        and session.will is None
        and not session.has_shares
        and session.is_idle
        and ids is not None
        and ids.is_empty
        and (queue is None or queue.is_read)
    )


def can_go_on(session: MqttSession, connect: Connect) -> bool:
    """Whether a parked session is what the client asks for, with nothing to store."""
    return not connect.clean_start and connect.will is None and session_expiry_s(connect) == session.expiry_s
