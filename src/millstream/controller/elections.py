"""Master elections: who becomes master, and when. Pure: time is passed in.

Source of the policy: RocketMQ 5.3's DefaultElectPolicy and ReplicasInfoManager (facts only). What differs: the new set
holds the living members of the old one, not the new master alone, since each of them has all that was acknowledged;
learners are never elected; equal candidates are distinguished by their id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from msgspec.structs import replace

from millstream.controller.liveness import Liveness
from millstream.controller.replica_sets import ReplicaSet, SetChange
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.controller_requests import BY_CONTROLLER

__all__ = ["LEASE_MARGIN", "LEASE_S", "Election", "ElectionOutcome", "Elections"]

LEASE_S: Final = 3.0
"""Seconds for which the answer to a heartbeat lets a master go on, counted from when it sent it."""

LEASE_MARGIN: Final = 1.1
"""By how much the controller waits longer than the lease: clocks of two machines do not run alike."""


class ElectionOutcome(Enum):
    """How an election ended; the values are RocketMQ's names in its metrics."""

    ELECTED = "new_master_elected"
    KEPT = "keep_current_master"
    NOBODY = "no_master_elected"


@dataclass(frozen=True, slots=True)
class Election:
    """What an election comes to once its `change` is applied; None changes nothing."""

    outcome: ElectionOutcome
    change: SetChange | None = None
    previous_lease_s: float = 0.0
    """How long a former master may still hold its lease."""


class Elections:
    """Judges by heartbeats who is fit. `is_unclean` lets replicas be elected that may lack acknowledged messages."""

    def __init__(self, liveness: Liveness, *, lease_s: float = LEASE_S, is_unclean: bool = False) -> None:
        self._liveness = liveness
        self.lease_s = lease_s
        self.is_unclean = is_unclean

    def find_due(self, sets: Iterable[ReplicaSet], now_s: float) -> list[str]:
        """The broker names that need an election now: the master is dead, or there is none and somebody is fit."""
        return [one.name for one in sets if one.master_epoch and self._is_due(one, now_s)]

    def elect(self, found: ReplicaSet, asker: int, now_s: float, *, is_designated: bool = False) -> Election:
        """The election that a replica, or the controller (-1), asks for.

        Raises BROKER_NEEDS_TO_BE_REGISTERED, ELECT_MASTER_FAILED (a learner, or the former master's lease is not over).
        """
        self._check_asker(found, asker)
        if not found.master_epoch:
            is_first = asker != BY_CONTROLLER
            return self._promote(found, asker, (asker,), now_s) if is_first else Election(ElectionOutcome.NOBODY)
        designated = asker if is_designated else None
        if found.master is not None and designated in (None, found.master) and self._lives(found, found.master, now_s):
            return Election(ElectionOutcome.KEPT)
        chosen = self._choose(found, designated, now_s)
        if chosen is None:
            return self._find_nobody(found, asker, now_s)
        self._check_lease(found, chosen, now_s)
        members = tuple(one for one in found.members if one == chosen or self._lives(found, one, now_s))
        return self._promote(found, chosen, members if chosen in members else (chosen,), now_s)

    def lease_wait_s(self, found: ReplicaSet, chosen: int | None, now_s: float) -> float:
        """Seconds to wait for leases of others before `chosen` may be elected.

        Only where the set alone does not keep a former master from acknowledging: it waits for some replicas, not for
        all.
        """
        return self._lease_left_s(found, chosen, now_s, all_ack=(False,))

    def _is_due(self, found: ReplicaSet, now_s: float) -> bool:
        if found.master is not None and self._lives(found, found.master, now_s):
            return False
        chosen = self._choose(found, None, now_s)
        return (found.master is not None or chosen is not None) and not self.lease_wait_s(found, chosen, now_s)

    def _check_asker(self, found: ReplicaSet, asker: int) -> None:
        if asker == BY_CONTROLLER:
            return
        replica = found.replicas.get(asker)
        if replica is None:
            words = f"Broker {found.name} has no replica {asker}."
            raise NameRefused("BROKER_NEEDS_TO_BE_REGISTERED", words)
        if replica.is_learner:
            words = f"Replica {asker} of {found.name} is a learner, which is never a master."
            raise NameRefused("ELECT_MASTER_FAILED", words, remedy="Start it without asyncLearner.")

    def _check_lease(self, found: ReplicaSet, chosen: int, now_s: float) -> None:
        if found.master is not None and self._lives(found, found.master, now_s):
            return
        wait_s = self.lease_wait_s(found, chosen, now_s)
        if wait_s:
            words = f"The lease of a former master of {found.name} may run for another {wait_s:.1f} s."
            raise NameRefused("ELECT_MASTER_FAILED", words, remedy="Ask again after that time.")

    def _choose(self, found: ReplicaSet, designated: int | None, now_s: float) -> int | None:
        circles: list[Iterable[int]] = [found.members]
        if self.is_unclean:
            circles += [found.last_members, found.replicas]
        for circle in circles:
            chosen = self._choose_from(found, circle, designated, now_s)
            if chosen is not None:
                return chosen
        return None

    def _choose_from(
        self, found: ReplicaSet, circle: Iterable[int], designated: int | None, now_s: float
    ) -> int | None:
        fit = [one for one in circle if self._is_fit(found, one, now_s)]
        if designated is not None:
            return designated if designated in fit else None
        return min(fit, key=lambda one: self._rank(found.name, one), default=None)

    def _is_fit(self, found: ReplicaSet, number: int, now_s: float) -> bool:
        replica = found.replicas.get(number)
        return replica is not None and not replica.is_learner and self._liveness.is_heard(found.name, number, now_s)

    def _rank(self, name: str, number: int) -> tuple[bool, int, int, int, int]:
        """The best one is the least: a whole log, then a longer one of a later epoch, then the preferred replica, then
        the older one."""
        beat = self._liveness.find(name, number)
        assert beat is not None
        return beat.is_damaged, -beat.epoch, -beat.max_offset, beat.priority, number

    def _promote(self, found: ReplicaSet, master: int, members: tuple[int, ...], now_s: float) -> Election:
        after = replace(
            found,
            master=master,
            master_epoch=found.master_epoch + 1,
            members=members,
            set_epoch=found.set_epoch + 1,
            last_members=found.members,
        )
        change = SetChange("elect", found.name, found.revision, after)
        left_s = self._lease_left_s(found, master, now_s, all_ack=(True, False))
        return Election(ElectionOutcome.ELECTED, change, left_s)

    def _find_nobody(self, found: ReplicaSet, asker: int, now_s: float) -> Election:
        if asker != BY_CONTROLLER or found.master is None or self._lives(found, found.master, now_s):
            return Election(ElectionOutcome.NOBODY)
        after = replace(found, master=None, master_epoch=found.master_epoch + 1)
        return Election(ElectionOutcome.NOBODY, SetChange("elect", found.name, found.revision, after))

    def _lease_left_s(self, found: ReplicaSet, chosen: int | None, now_s: float, *, all_ack: tuple[bool, ...]) -> float:
        """What is left of the longest lease that others may hold, of those that acknowledge in one of these ways.

        Of all others, not of the last master alone: that one may have died before its own predecessor's lease ended.
        """
        lease_s = self.lease_s * LEASE_MARGIN
        left = (
            self._liveness.lease_left_s(found.name, number, lease_s, now_s)
            for number, replica in found.replicas.items()
            if number != chosen and replica.all_ack in all_ack
        )
        return max(left, default=0.0)

    def _lives(self, found: ReplicaSet, number: int, now_s: float) -> bool:
        return self._liveness.is_alive(found.name, number, now_s)
