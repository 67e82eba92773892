"""The sync state set: which replicas must hold a message before it is confirmed, and how far each is.

The set is the controller's (codes 1001 to 1004). A master changes it only by asking, and until it knows the outcome the
members of both, the set that it has and the one it has asked for, must have what it acknowledges (#5663).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["BARRED_S", "MAX_BEHIND_S", "MAX_LOST_S", "AckPolicy", "ReplicaAck", "SetRequest", "SyncSet"]

MAX_BEHIND_S: Final = 15.0
"""So long a member may be behind before the master asks to go on without it (`haMaxTimeSlaveNotCatchup`)."""

MAX_LOST_S: Final = 1.5
"""So long a member may be without a session before the master asks to go on without it."""

BARRED_S: Final = 1.0
"""So long the master does not ask again for a replica that the controller refused as a member."""


class ReplicaAck(StrEnum):
    """What of a replica counts: that the log is written there, or that it is on the disk."""

    WRITTEN = "written"
    FLUSHED = "flushed"


@dataclass(frozen=True, slots=True)
class AckPolicy:
    """When a message counts as stored, by RocketMQ's names.

    `all_in_set`: every member of the set has it. Otherwise any `in_sync_replicas` of the replicas, the master among
    them: then the set protects nothing, and the master must hold its lease (`MasterLease`).
    `min_in_sync`: with fewer members in the set nothing is written at all.
    """

    all_in_set: bool = True
    in_sync_replicas: int = 1
    min_in_sync: int = 1
    replica_ack: ReplicaAck = ReplicaAck.WRITTEN


@dataclass(frozen=True, slots=True)
class SetRequest:
    """A request to the controller (1001): these members instead of those of `set_epoch`, as the master of `epoch`."""

    members: frozenset[int]
    set_epoch: int
    epoch: int


@dataclass(slots=True)
class _Replica:
    """What is known of one identity in this epoch of the master."""

    session: int | None = None  # the one live session
    acked: int | None = None  # what counts of the last acknowledgement; None: none in this session
    written: int = -1
    mark_end: int = 0  # where the master's log ended at the last acknowledgement,
    mark_s: float = 0.0  # and when that was
    level_s: float = 0.0  # when it had all that there was, last
    lost_s: float = 0.0  # since when there is no session
    is_leaving: bool = False  # whether it said that it stops
    barred_until_s: float = 0.0  # until when the controller is not asked for it again


class SyncSet:
    """One value, changed by one task (#9897). Times are seconds of a monotonic clock.

    A session is a number that the caller gives, never used twice. A replica counts once, by its latest session,
    however many connections claim its identity.
    """

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        members: Iterable[int],
        set_epoch: int,
        *,
        policy: AckPolicy,
        confirmed: int,
        epoch_start: int,
        now_s: float,
    ) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.policy = policy
        self._members = frozenset(members) | {broker_id}
        self._set_epoch = set_epoch
        self._pending: SetRequest | None = None
        self._is_asking = False
        self._confirmed = confirmed
        self._epoch_start = epoch_start
        self._own = _Replica(acked=confirmed)
        self._own_end = confirmed
        self._started_s = now_s
        self._replicas: dict[int, _Replica] = {}

    @property
    def members(self) -> frozenset[int]:
        """The set as the controller has told it."""
        return self._members

    @property
    def set_epoch(self) -> int:
        """The epoch of that set."""
        return self._set_epoch

    @property
    def required(self) -> frozenset[int]:
        """Who must have a message before it counts: the set and what was asked for."""
        return self._members | (self._pending.members if self._pending else frozenset())

    @property
    def pending(self) -> SetRequest | None:
        """The set that was asked for, whose outcome is not known."""
        return self._pending

    @property
    def takes_writes(self) -> bool:
        """Whether the set is as large as `min_in_sync` demands; of a change under way only those in both sets count."""
        sure = self._members & self._pending.members if self._pending else self._members
        return len(sure) >= self.policy.min_in_sync

    @property
    def confirmed(self) -> int:
        """Up to which log offset messages count: what readers see and senders are answered. It never goes back."""
        return self._confirmed

    def note_own(self, written: int, flushed: int) -> None:
        """Note up to where the master's own log is written and flushed."""
        self._own_end = written
        self._own.acked = self._choose_offset(written, flushed)
        self._advance()

    def open_session(self, broker_id: int, session: int, now_s: float) -> int | None:
        """Note a new session of a replica; the one that it replaces, which the caller closes.

        What the replica acknowledged before counts no more: it may have lost its disk. Raises ValueError for the
        master's own identity.
        """
        if broker_id == self.broker_id:
            raise ValueError(f"Broker {broker_id} is the master itself; give each replica its own id.")
        known = self._replicas.get(broker_id)
        replaced = known.session if known is not None else None
        level_s = known.level_s if known is not None else now_s
        self._replicas[broker_id] = _Replica(
            session=session, mark_end=self._own_end, mark_s=now_s, level_s=level_s, lost_s=now_s
        )
        return replaced

    def close_session(self, broker_id: int, session: int, now_s: float) -> None:
        """Note the end of a session. A session that was replaced ends nothing."""
        replica = self._replicas.get(broker_id)
        if replica is not None and replica.session == session:
            replica.session, replica.lost_s = None, now_s

    def note_leaving(self, broker_id: int, session: int) -> None:
        """Note that a replica stops: the set is to go on without it at once. A new session ends that."""
        replica = self._replicas.get(broker_id)
        if replica is not None and replica.session == session:
            replica.is_leaving = True

    def acknowledge(self, broker_id: int, session: int, written: int, flushed: int, now_s: float) -> None:
        """Note what a replica has. Of a session that is over, or was replaced, it counts nothing."""
        replica = self._replicas.get(broker_id)
        if replica is None or replica.session != session:
            return
        replica.acked = self._choose_offset(written, flushed)
        replica.written = written
        if written >= replica.mark_end:
            # Under load nobody ever has all; who has what there was the last time is not behind.
            replica.level_s = max(replica.level_s, replica.mark_s)
            replica.mark_end, replica.mark_s = self._own_end, now_s
        self.tick(now_s)
        self._advance()

    def tick(self, now_s: float) -> None:
        """Note that time has passed: who is level is so until now, even if nothing was to be acknowledged."""
        for replica in self._replicas.values():
            if replica.session is not None and replica.written >= self._own_end:
                replica.level_s = now_s

    def next_change(self, now_s: float) -> SetRequest | None:
        """What to ask of the controller now; None while a request is under way or nothing is to change.

        Call it after each acknowledgement and each tick. From here on the members that it names count; end it with
        `note_set`, `note_refused` or `note_lost`.
        """
        if self._is_asking:
            return None
        if self._pending is None:
            members = (self._members | self._find_arrivals(now_s)) - self._find_departures(now_s)
            if members == self._members:
                return None
            self._pending = SetRequest(members, self._set_epoch, self.epoch)
        self._is_asking = True
        return self._pending

    def note_set(self, members: Iterable[int], set_epoch: int) -> None:
        """Note the set that the controller has told, in an answer or on its own. An older one changes nothing."""
        if set_epoch <= self._set_epoch:
            return
        self._members, self._set_epoch = frozenset(members) | {self.broker_id}, set_epoch
        # A request for the epoch before is refused from now on, even if it is still on its way.
        self._pending, self._is_asking = None, False
        self._advance()

    def note_refused(self, now_s: float) -> None:
        """Note that the controller has refused the change: it does so only where no earlier attempt can still be made.

        The change is forgotten, and those that would have come in are not asked for again for `BARRED_S`.
        """
        self._is_asking = False
        if self._pending is None:
            return
        for broker_id in self._pending.members - self._members:
            if broker_id in self._replicas:
                self._replicas[broker_id].barred_until_s = now_s + BARRED_S
        self._pending = None
        self._advance()

    def note_lost(self) -> None:
        """Note that no answer came: the change may have been made. Its members go on counting, it is asked again."""
        self._is_asking = False

    def _choose_offset(self, written: int, flushed: int) -> int:
        return flushed if self.policy.replica_ack is ReplicaAck.FLUSHED else written

    def _advance(self) -> None:
        reached = self._reached_by_all() if self.policy.all_in_set else self._reached_by_some()
        if reached is not None:
            self._confirmed = max(self._confirmed, min(reached, self._own_end))

    def _reached_by_all(self) -> int | None:
        """None where a member has acknowledged nothing in this epoch: it holds the confirmed offset (#6662)."""
        reached = [self.ack_of(broker_id) for broker_id in self.required]
        return min((offset for offset in reached if offset is not None), default=None) if None not in reached else None

    def _reached_by_some(self) -> int | None:
        known = (self.ack_of(broker_id) for broker_id in (self.broker_id, *self._replicas))
        descending = sorted((offset for offset in known if offset is not None), reverse=True)
        wanted = max(1, self.policy.in_sync_replicas)
        return descending[wanted - 1] if len(descending) >= wanted else None

    def ack_of(self, broker_id: int) -> int | None:
        """What counts of the last acknowledgement of a replica; None without a session."""
        if broker_id == self.broker_id:
            return self._own.acked
        replica = self._replicas.get(broker_id)
        return replica.acked if replica is not None and replica.session is not None else None

    def _find_arrivals(self, now_s: float) -> frozenset[int]:
        """Replicas outside the set that have all that counts, and the start of this epoch."""
        needed = max(self._confirmed, self._epoch_start)
        live = {
            broker_id: self.ack_of(broker_id)
            for broker_id, replica in self._replicas.items()
            if broker_id not in self._members and not replica.is_leaving and replica.barred_until_s <= now_s
        }
        return frozenset(broker_id for broker_id, acked in live.items() if acked is not None and acked >= needed)

    def _find_departures(self, now_s: float) -> frozenset[int]:
        """Members that were behind or without a session for too long."""
        return frozenset(
            broker_id
            for broker_id in self._members - {self.broker_id}
            if self._has_departed(self._replicas.get(broker_id), now_s)
        )

    def _has_departed(self, replica: _Replica | None, now_s: float) -> bool:
        if replica is None:
            return now_s - self._started_s > MAX_LOST_S
        if replica.is_leaving:
            return True
        if replica.session is None:
            return now_s - replica.lost_s > MAX_LOST_S
        return now_s - replica.level_s > MAX_BEHIND_S
