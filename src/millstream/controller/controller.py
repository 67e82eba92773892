"""A controller: answers brokers and tools from the replicated state, and elects masters.

All calls come from one event loop. What it sends to brokers goes out through `notify` and `reach`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from millstream.controller.elections import LEASE_S, Election, ElectionOutcome, Elections
from millstream.controller.liveness import SILENCE_S, Liveness
from millstream.controller.replica_sets import FIRST_ID, ReplicaSet, ReplicaSets, SetChange
from millstream.controller.replicated_log import ControllerPeer, LogRole, ReplicatedLog, not_leader_error
from millstream.controller.set_requests import alter_set, apply_id, clean_replicas, register_replica
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConsumeRefused, MillstreamError, NameRefused
from millstream.protocol.remoting.administration.controller_requests import (
    BY_CONTROLLER,
    AlterSetRequest,
    ApplyIdRequest,
    BrokerHeartbeat,
    CleanBrokerRequest,
    ElectRequest,
    MasterFields,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.administration.sync_state_sets import SyncStateSetBody
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["TICK_S", "Controller", "ControllerOptions", "Elected"]

_log = logging.getLogger(__name__)

TICK_S: Final = 0.2
"""Seconds between two looks for dead masters."""

REACH_PAUSES_S: Final = (0.0, 0.02, 0.05, 0.1)
"""Seconds before each look whether a broker still listens whose connection closed; a heartbeat ends them."""

_MAX_TRIES: Final = 5
"""How often a request is evaluated again because another change came between."""

_MS: Final = 1000


@dataclass(slots=True)
class ControllerOptions:
    """How a controller decides; those of all controllers of a group are to be the same. Tools change some of them."""

    group: str = "DefaultControllerGroup"
    self_id: str = "n0"
    peers: tuple[ControllerPeer, ...] = ()
    """All controllers, this one among them."""
    silence_s: float = SILENCE_S
    lease_s: float = LEASE_S
    is_unclean: bool = False
    notifies: bool = True
    """Whether replicas are told of elections; without it they find out when they ask."""


@dataclass(frozen=True, slots=True)
class Elected:
    """How a request for an election ended: the set as it is from then on, and what the election came to."""

    found: ReplicaSet
    election: Election


def _keep_silent(_address: str, _command: RemotingCommand) -> None:
    """Nobody is told."""


async def _reach_nobody(_address: str) -> bool:
    return False


@dataclass(slots=True)
class Controller:
    """`sets` is the state that `log` applies to. `tick` is to be called every `TICK_S`."""

    sets: ReplicaSets
    log: ReplicatedLog
    options: ControllerOptions = field(default_factory=ControllerOptions)
    clock: Clock = field(default_factory=SystemClock)
    notify: Callable[[str, RemotingCommand], None] = _keep_silent
    """Sends a one-way request to a broker's address."""
    reach: Callable[[str], Awaitable[bool]] = _reach_nobody
    """Whether anything listens at an address."""
    liveness: Liveness = field(init=False)
    elections: Elections = field(init=False)
    election_counts: Counter[ElectionOutcome] = field(default_factory=Counter)
    _term: int | None = None
    _electing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """One change of a broker name at a time."""
    _undecided: set[str] = field(default_factory=set)
    """Names that a change was proposed for in this term which may be made or not."""

    def __post_init__(self) -> None:
        self.liveness = Liveness(self.options.silence_s)
        self.elections = Elections(self.liveness, lease_s=self.options.lease_s, is_unclean=self.options.is_unclean)

    def leads(self) -> bool:
        """Whether this controller decides. One that has just become the leader lets all ages begin at zero."""
        if self.log.role is not LogRole.LEADER:
            return False
        if self._term != self.log.term:
            self._term = self.log.term
            self._undecided.clear()
            self.liveness.restart(self._now_s())
            _log.info("This controller leads, term %d.", self._term)
        return True

    async def apply_id(self, asked: ApplyIdRequest) -> None:
        """Give a new replica its id. Raises BROKER_ID_INVALID, CONTROLLER_NOT_LEADER, CONTROLLER_LOG_FAILED, as do the
        others beside their own."""
        await self._change(asked.name, lambda found: apply_id(found, asked))

    async def next_id(self, name: str) -> int:
        """The id that a new replica of that name may ask for."""
        found = await self._read(name)
        return FIRST_ID if found is None else found.next_id

    async def register(self, asked: RegisterReplicaRequest) -> ReplicaSet:
        """A replica's process starts: its set, without a master if that one is dead. BROKER_NEEDS_TO_BE_REGISTERED.

        Where it was the master itself another one is elected, or none: what it has now need not be what it had.
        """
        found = await self._change(asked.name, lambda found: register_replica(found, asked))
        assert found is not None
        self.liveness.end_lease(asked.name, asked.broker_id)
        if found.master == asked.broker_id:
            self.liveness.lose(asked.name, asked.broker_id)
            await self._elect_safely(asked.name)
            found = self.sets.find(asked.name) or found
        return found

    async def alter(self, asked: AlterSetRequest, wanted: SyncStateSetBody) -> ReplicaSet:
        """Change a set as its master wishes; the set from then on. Raises what `alter_set` does.

        A refusal says that no earlier change can still be made that the master heard nothing of; until then it is
        CONTROLLER_LOG_FAILED.
        """
        try:
            found = await self._change(
                asked.name, lambda found: alter_set(found, asked, wanted, partial(self._lives, asked.name))
            )
        except NameRefused as error:
            if asked.name in self._undecided:
                words = f"An earlier change of {asked.name[:80]} is not decided yet."
                raise ConsumeRefused("CONTROLLER_LOG_FAILED", words) from error
            raise
        assert found is not None
        return found

    async def elect(self, asked: ElectRequest) -> Elected:
        """Have a master elected and tell the replicas. Raises BROKER_NEEDS_TO_BE_REGISTERED, ELECT_MASTER_FAILED,
        MASTER_NOT_AVAILABLE."""
        elected = await self._elect(asked.name, asked.broker_id, is_designated=asked.is_designated)
        if elected.election.outcome is ElectionOutcome.NOBODY:
            name = "MASTER_NOT_AVAILABLE" if asked.broker_id == BY_CONTROLLER else "ELECT_MASTER_FAILED"
            raise NameRefused(name, f"No replica of {asked.name} is fit to become the master.")
        return elected

    async def clean(self, asked: CleanBrokerRequest) -> None:
        """Forget replicas. Raises INVALID_CLEAN_BROKER_METADATA."""
        before = self.sets.find(asked.name)
        after = await self._change(
            asked.name, lambda found: clean_replicas(found, asked, partial(self._lives, asked.name))
        )
        for number in () if before is None else before.replicas:
            if after is None or number not in after.replicas:
                self.liveness.forget(asked.name, number)

    async def replica_info(self, name: str) -> ReplicaSet:
        """The set of a broker name. Raises BROKER_METADATA_NOT_EXIST."""
        found = await self._read(name)
        if found is None:
            raise NameRefused("BROKER_METADATA_NOT_EXIST", f"The broker {name[:80]!r} is not known.")
        return found

    async def find_sets(self, names: Iterable[str]) -> list[ReplicaSet]:
        """The sets of those names that are known."""
        self._check_leader()
        await self.log.barrier()
        return [found for name in dict.fromkeys(names) if (found := self.sets.find(name)) is not None]

    def lives(self, name: str, broker_id: int) -> bool:
        """Whether that replica lives, as far as this controller hears."""
        return self._lives(name, broker_id)

    def beat(self, told: BrokerHeartbeat) -> bool:
        """Take a heartbeat; whether it is a master's here at the leader, for whom `renew_lease` has the answer.

        Raises BROKER_NEEDS_TO_BE_REGISTERED, INVALID_CONTROLLER_REQUEST, BROKER_ID_INVALID for one from elsewhere.
        """
        if told.broker_id < FIRST_ID:
            words = f"A heartbeat of {told.name[:80]!r} has the id {told.broker_id}."
            raise NameRefused("INVALID_CONTROLLER_REQUEST", words, remedy="Send the controller id of the replica.")
        found = self.sets.find(told.name)
        if found is None or told.broker_id not in found.replicas:
            if not self.leads():
                return False
            words = f"Broker {told.name[:80]!r} has no replica {told.broker_id}."
            raise NameRefused("BROKER_NEEDS_TO_BE_REGISTERED", words)
        address = found.replicas[told.broker_id].address
        if told.address != address and self.leads():
            words = (
                f"Replica {told.broker_id} of {told.name} is at {address}; this heartbeat is from {told.address[:80]}."
            )
            remedy = "Two brokers have one identity, as with a copied directory: stop one, or remove its replica.json."
            raise NameRefused("BROKER_ID_INVALID", words, remedy=remedy)
        self.liveness.note(told, self._now_s())
        return self.leads() and found.master == told.broker_id

    async def renew_lease(self, told: BrokerHeartbeat) -> int:
        """Milliseconds for which the master may go on that sent this heartbeat; 0 if it is none any more.

        One that said goodbye is replaced first. Raises CONTROLLER_NOT_LEADER, CONTROLLER_LOG_FAILED.
        """
        if told.is_goodbye:
            await self._elect_safely(told.name)
            return 0
        # A controller that was cut off must not prolong what its successor lets end.
        found = await self._read(told.name)
        # An election under way was decided by the lease as it was.
        if found is None or found.master != told.broker_id or told.name in self._undecided:
            return 0
        self.liveness.grant_lease(told.name, told.broker_id, self._now_s())
        return round(self.options.lease_s * _MS)

    async def note_closed(self, name: str, broker_id: int) -> None:
        """The connection of a replica's heartbeats closed: if nothing listens at its address it is dead at once."""
        found = self.sets.find(name)
        replica = None if found is None else found.replicas.get(broker_id)
        if found is None or replica is None:
            return
        before = self.liveness.find(name, broker_id)
        for pause_s in REACH_PAUSES_S:
            # The system closes the connections of a process that ends before it closes its port.
            await asyncio.sleep(pause_s)
            is_reached = await self.reach(replica.address)
            if self.liveness.find(name, broker_id) is not before:
                return
            if not is_reached:
                self.liveness.lose(name, broker_id)
                self.tick()
                return

    def tick(self) -> None:
        """Begin the elections that are due, one for each broker name at a time."""
        if not self.leads():
            return
        for name in self.elections.find_due(self.sets, self._now_s()):
            if name not in self._electing:
                task = asyncio.get_running_loop().create_task(self._elect_safely(name), name=f"elect-{name}")
                self._electing[name] = task
                task.add_done_callback(lambda _, name=name: self._electing.pop(name, None))  # type: ignore[misc]

    async def close(self) -> None:
        """Begin no more elections, and close the log."""
        for task in list(self._electing.values()):
            task.cancel()
        await asyncio.gather(*self._electing.values(), return_exceptions=True)
        await self.log.close()

    def count_active(self) -> dict[str, int]:
        """How many replicas of each broker name live."""
        now_s = self._now_s()
        return {
            one.name: sum(self.liveness.is_heard(one.name, number, now_s) for number in one.replicas)
            for one in self.sets
        }

    # inside

    def _now_s(self) -> float:
        return self.clock.monotonic_s()

    def _lives(self, name: str, broker_id: int) -> bool:
        return self.liveness.is_alive(name, broker_id, self._now_s())

    def _check_leader(self) -> None:
        if not self.leads():
            raise not_leader_error(self.log.leader)

    async def _read(self, name: str) -> ReplicaSet | None:
        self._check_leader()
        await self.log.barrier()
        return self.sets.find(name)

    async def _change(self, name: str, decide: Callable[[ReplicaSet | None], SetChange | None]) -> ReplicaSet | None:
        """The set once the change is made; decided again where another change came between."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            for _ in range(_MAX_TRIES):
                found = await self._read(name)
                change = decide(found)
                if change is None:
                    return found
                self._undecided.add(name)
                # Where this fails the change may still be made, as long as nobody else leads.
                is_made = await self.log.propose(change)
                self._undecided.discard(name)
                if is_made:
                    return change.after
        raise ConsumeRefused("CONTROLLER_LOG_FAILED", f"The set of {name[:80]} changes too often.")

    async def _elect(self, name: str, asker: int, *, is_designated: bool = False) -> Elected:
        election = Election(ElectionOutcome.KEPT)

        def decide(found: ReplicaSet | None) -> SetChange | None:
            nonlocal election
            if found is None:
                raise NameRefused("BROKER_NEEDS_TO_BE_REGISTERED", f"Broker {name[:80]!r} is not known.")
            election = self.elections.elect(found, asker, self._now_s(), is_designated=is_designated)
            return election.change

        after = await self._change(name, decide)
        assert after is not None
        self.election_counts[election.outcome] += 1
        if election.change is not None:
            words = "Broker %s: master %s, epoch %d, set %s of epoch %d."
            _log.info(words, name, after.master, after.master_epoch, list(after.members), after.set_epoch)
        if election.outcome is ElectionOutcome.ELECTED and self.options.notifies:
            self._tell_replicas(after, election.previous_lease_s)
        return Elected(after, election)

    async def _elect_safely(self, name: str) -> None:
        try:
            await self._elect(name, BY_CONTROLLER)
        except MillstreamError as error:
            _log.warning("No election for %s: %s", name, error)

    def _tell_replicas(self, found: ReplicaSet, previous_lease_s: float) -> None:
        fields = MasterFields(
            found.master, found.master_address, found.master_epoch, found.set_epoch, round(previous_lease_s * _MS)
        )
        body = encode_body(SyncStateSetBody(list(found.members), found.set_epoch))
        for number, replica in found.replicas.items():
            if self._lives(found.name, number):
                code = RequestCode.NOTIFY_BROKER_ROLE_CHANGED
                self.notify(replica.address, RemotingCommand(code, fields.encode(), body))
