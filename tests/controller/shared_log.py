"""A log of several controllers without a network: one of them leads, others apply later what it decided."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.controller.replica_sets import ReplicaSets, SetChange
from millstream.controller.replicated_log import ControllerPeer, LogRole, not_leader_error
from millstream.model.errors import ConsumeRefused


@dataclass
class SharedLog:
    """What all members agreed on. `fate` says what becomes of the next proposals."""

    entries: list[bytes] = field(default_factory=list)
    leader: ControllerPeer | None = None
    term: int = 0
    fates: list[str] = field(default_factory=list)
    """`lost`: it fails and is not made; `unanswered`: it fails and is made; none left: it is made."""


class LogMember:
    """One controller's view. One that was deposed does not know until it asks."""

    def __init__(self, shared: SharedLog, me: ControllerPeer, sets: ReplicaSets) -> None:
        self._shared = shared
        self._me = me
        self._sets = sets
        self._applied = 0
        self.term = 0
        self._believes = False

    @property
    def role(self) -> LogRole:
        return LogRole.LEADER if self._believes else LogRole.FOLLOWER

    @property
    def leader(self) -> ControllerPeer | None:
        return self._me if self._believes else self._shared.leader

    def take_lead(self) -> None:
        """Become the leader of a new term, with all applied that was agreed before."""
        self._shared.leader, self._shared.term = self._me, self._shared.term + 1
        self.catch_up()
        self.term, self._believes = self._shared.term, True

    def catch_up(self) -> None:
        """Apply what the others have agreed on meanwhile."""
        for entry in self._shared.entries[self._applied :]:
            self._sets.apply(SetChange.decode(entry))
        self._applied = len(self._shared.entries)

    async def propose(self, change: SetChange) -> bool:
        self._check()
        fate = self._shared.fates.pop() if self._shared.fates else ""
        if fate != "lost":
            self._shared.entries.append(change.encode())
        if fate:
            raise ConsumeRefused("CONTROLLER_LOG_FAILED", f"The proposal is {fate}.")
        before = self._sets.encode()
        self.catch_up()
        return self._sets.encode() != before

    async def barrier(self) -> None:
        self._check()
        self.catch_up()

    async def close(self) -> None:
        """Nothing to do."""

    def _check(self) -> None:
        if self._shared.leader != self._me:
            self._believes = False
            raise not_leader_error(self._shared.leader)
