"""The interface of a replicated log, and the log of a single controller."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from millstream.controller.replica_sets import ReplicaSets, SetChange
from millstream.model.errors import ConsumeRefused, NameRefused, StoreError
from millstream.store.files import refusal_name
from millstream.store.snapshot import Snapshot

__all__ = ["ControllerPeer", "LogRole", "ReplicatedLog", "SingleMemberLog", "not_leader_error"]


@dataclass(frozen=True, slots=True)
class ControllerPeer:
    """One controller: its id among them, and where it listens as `host:port`."""

    id: str
    address: str


class LogRole(IntEnum):
    """What a controller is among the others; the numbers are those of RocketMQ's metric."""

    UNKNOWN = 0
    CANDIDATE = 1
    FOLLOWER = 2
    LEADER = 3


class ReplicatedLog(Protocol):
    """Entries in one order, applied to the state of every controller once most of them have them."""

    @property
    def role(self) -> LogRole:
        """LEADER only once all that was agreed before is applied here."""
        ...

    @property
    def term(self) -> int:
        """Grows whenever there may be another leader."""
        ...

    @property
    def leader(self) -> ControllerPeer | None:
        """Who leads, as far as is known here."""
        ...

    async def propose(self, change: SetChange) -> bool:
        """Whether the change applied; returns once it is here. Raises CONTROLLER_NOT_LEADER, CONTROLLER_LOG_FAILED.

        After an error the change may still come to apply.
        """
        ...

    async def barrier(self) -> None:
        """Return once this was the leader after the call, with all applied that was agreed before it. Raises as
        `propose`."""
        ...

    async def close(self) -> None:
        """Take no more proposals."""
        ...


def not_leader_error(leader: ControllerPeer | None) -> NameRefused:
    """What a controller answers that is not the leader."""
    words = "No controller leads now." if leader is None else f"The controller {leader.id} at {leader.address} leads."
    return NameRefused("CONTROLLER_NOT_LEADER", words)


class SingleMemberLog:
    """The log of a controller without others: it always leads, and each change is on the disk before it is answered.

    It saves the state as a whole; changes that come while it is saved share the next save. Without a snapshot the
    state is in memory alone. Raises STORE_FORMAT where what was saved cannot be read. A save that fails ends its lead,
    because then the disk is behind what it knows.
    """

    def __init__(self, sets: ReplicaSets, me: ControllerPeer, snapshot: Snapshot | None = None) -> None:
        self._sets = sets
        self._me = me
        self._snapshot = snapshot
        self._applied = self._saved = 0
        self._saving: asyncio.Task[None] | None = None
        self._failure: StoreError | None = None
        kept = None if snapshot is None else snapshot.load()
        if kept is not None:
            sets.restore(kept)

    @property
    def role(self) -> LogRole:
        return LogRole.LEADER if self._failure is None else LogRole.UNKNOWN

    @property
    def term(self) -> int:
        return 1

    @property
    def leader(self) -> ControllerPeer | None:
        return self._me if self._failure is None else None

    async def propose(self, change: SetChange) -> bool:
        self._check()
        if not self._sets.apply(change):
            return False
        self._applied += 1
        await self._save(self._applied)
        return True

    async def barrier(self) -> None:
        await self._save(self._applied)
        self._check()

    async def close(self) -> None:
        if self._failure is None:
            await self._save(self._applied)

    def _check(self) -> None:
        if self._failure is not None:
            raise ConsumeRefused("CONTROLLER_LOG_FAILED", self._failure.message)

    async def _save(self, applied: int) -> None:
        """Return once that many changes are on the disk."""
        while self._saved < applied and self._snapshot is not None:
            if self._saving is None:
                self._saving = asyncio.create_task(self._save_all(self._snapshot), name="controller-save")
            await asyncio.shield(self._saving)
            self._check()

    async def _save_all(self, snapshot: Snapshot) -> None:
        applied, document = self._applied, self._sets.encode()
        try:
            await asyncio.to_thread(snapshot.save, document)
            self._saved = applied
        except OSError as error:
            name = refusal_name(error, "STORE_FAILED")
            self._failure = StoreError(name, f"The controller's state cannot be saved: {error}.")
        finally:
            self._saving = None
