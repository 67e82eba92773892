"""A replicated broker: master or replica of its set, as the controllers decide.

    REGISTERING ──► REPLICA ──elected──► MASTER
                       ▲                   │ another one is elected
                       └───────────────────┘

One task makes all changes of role, one after the other. A change begins when a controller says something later than
what holds: in the answer to a heartbeat, in a notice (code 1008), or when it is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from millstream.broker.broker import Broker
from millstream.controller.broker_calls import address_of
from millstream.controller.elections import LEASE_S
from millstream.controller.remoting import LEASE_FIELD
from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, MillstreamError, NameRefused, StoreError
from millstream.protocol.remoting.administration.controller_requests import BrokerHeartbeat
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import optional_integer
from millstream.protocol.remoting.messages.replication import NO_EPOCH, RangeRequest
from millstream.replication.epoch_list import EpochStart
from millstream.replication.epoch_log import EpochLog
from millstream.replication.follower import Follower, NextStep, ReplicaIdentity, Step
from millstream.replication.master_lease import MasterLease, takeover_wait_s
from millstream.replication.source import LogSource
from millstream.replication.sync_set import AckPolicy, SyncSet
from millstream.security.signature import Credentials
from millstream.server.replicas.fetch_port import FetchPort
from millstream.server.replicas.follower_task import FollowerTask
from millstream.server.replicas.log_mender import LogMender
from millstream.server.replicas.membership import MasterView, Membership
from millstream.server.replicas.replica_seed import ReplicaSeed, fetch_seed, make_seed
from millstream.server.replicas.replica_store import ReplicaStore
from millstream.server.replicas.set_changes import SetChanges
from millstream.store.damage.log_mending import SoundRange
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["ReplicaOptions", "ReplicaRole", "ReplicatedBroker", "ServedReads"]

_log = logging.getLogger(__name__)

FOLLOW_S: Final = 0.5
"""Seconds between two times that a replica applies the state in its log."""

KEEP_S: Final = 10.0
"""Seconds between two times that a replica saves the state and lets old messages go."""

TICK_S: Final = 0.2
"""Seconds between two looks of a master at its set and its lease."""

HANDOVER_S: Final = 1.0
"""Seconds that a master which stops gives its replicas to have all of its log."""

GRACE_S: Final = 0.5
"""Seconds in which clients of a master that stops find the next one before the port is closed."""

LEASE_WAIT_S: Final = 0.5
"""Seconds that a new master waits for its lease at most before it registers: who only sends needs none."""

ASK_S: Final = 1.0
"""Seconds between two questions for the master while there is none."""

_AFTER_TROUBLE_S: Final = 0.1
"""Seconds between two questions for the master while that one cannot be followed."""


class ReplicaRole(Enum):
    """What a broker of a set is now."""

    REGISTERING = "registering"
    """It does not know its master; it answers nobody but replicas and controllers."""
    REPLICA = "replica"
    MASTER = "master"


@dataclass(slots=True)
class ServedReads:
    """What a replica has answered to readers since the start of its process."""

    requests: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How a broker replicates; the same for all replicas of a set."""

    policy: AckPolicy
    store: StoreOptions
    priority: int
    """The lower one is elected where two replicas are equally good."""
    scrub_bytes_per_s: int
    """How fast the log is looked through for damage; 0 not at all."""


class ReplicatedBroker:
    """`make_broker` makes the broker of the directory, once for each time that the store is opened.

    `on_open` is called with each that is made, which is a replica's at first. `on_lead` is awaited with the started
    broker and what holds once this replica is the master, `on_yield` before it is none any more, with whether it stops
    and is the only member of its set. `on_follow` is called when this replica begins to follow a master.
    """

    def __init__(
        self,
        directory: Path,
        membership: Membership,
        options: ReplicaOptions,
        make_broker: Callable[[], Broker],
        clock: Clock,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        on_open: Callable[[Broker], None],
        on_lead: Callable[[Broker, MasterView], Awaitable[None]],
        on_yield: Callable[[bool], Awaitable[None]],
        on_follow: Callable[[MasterView], None],
    ) -> None:
        self.port = FetchPort()
        self.reads = ServedReads()
        self.role = ReplicaRole.REGISTERING
        self.lease = MasterLease()
        self.view = MasterView(None, None, 0, frozenset(), 0)
        self._own = ReplicaStore(
            directory,
            options.store,
            clock,
            make_broker,
            on_open=on_open,
            kept_from=self._needed_by_set,
            on_damage=lambda log_offset: self.mender.suspect(log_offset),
        )
        self._membership = membership
        self._options = options
        self._credentials = credentials
        self._tls = tls
        self._on_lead = on_lead
        self._on_yield = on_yield
        self._on_follow = on_follow
        self._latest = self.view
        self._news = asyncio.Event()
        self._asks = False
        self._step: Step | None = None
        self._changing = asyncio.Lock()
        self._settled = asyncio.Event()
        self.mender = LogMender(
            self._own,
            membership,
            self._changing,
            options.scrub_bytes_per_s,
            credentials=credentials,
            tls=tls,
            on_whole=self._news.set,
        )
        self._follower: FollowerTask | None = None
        self._following: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ordered_from_s = 0.0
        self._has_lease = asyncio.Event()
        self._has_failed = False
        self.port.on_later_epoch = self._ask_soon
        self.port.on_doubt = self.mender.doubt
        self._changes = SetChanges(membership, self.port, self._ask_soon)
        self.port.on_heard = self._changes.review

    @property
    def directory(self) -> Path:
        """The data directory."""
        return self._own.directory

    @property
    def store(self) -> MessageStore:
        """The store, another one after each change of role."""
        return self._own.store

    @property
    def log(self) -> EpochLog:
        """Its log and the epochs of it."""
        return self._own.log

    @property
    def broker(self) -> Broker:
        """The broker over it, which is started at a master alone."""
        return self._own.broker

    async def await_confirmed(self) -> None:
        """Wait until all that was written so far is confirmed. Raises REPLICAS_TIMEOUT."""
        await self._own.await_confirmed()

    async def start(self) -> None:
        """Open the store and begin; the role is found beside. Raises StartRefused, StoreError."""
        self._membership.check()
        await self._own.open()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._live(), name="replica-role"),
            loop.create_task(self._keep_up(), name="replica-upkeep"),
            loop.create_task(self._tick(), name="replica-ticks"),
            loop.create_task(self.mender.run(), name="replica-mending"),
        ]

    async def await_role(self, timeout_s: float) -> bool:
        """Wait until the broker is the master or follows one; whether it is so in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        return self._settled.is_set()

    def note_view(self, view: MasterView) -> None:
        """A controller says what holds; older than what is known it changes nothing."""
        if view.order > self._latest.order:
            self._latest = view
            self._news.set()

    @property
    def identity(self) -> ReplicaIdentity:
        """Which replica of which broker this is."""
        return self._membership.identity

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return self._membership.address

    @property
    def master_end(self) -> int:
        """Where the master's log ended when it was heard last; 0 where none is followed."""
        return 0 if self._follower is None else self._follower.follower.master_end

    @property
    def serves_reads(self) -> bool:
        """Whether it is a replica whose log is open: what it shows is confirmed, and stays so whoever is the master."""
        return self.role is ReplicaRole.REPLICA and self._own.is_open

    @property
    def readable_replicas(self) -> frozenset[int]:
        """The ids under which readers find replicas that have everything; none where the master is not known."""
        if self.role is ReplicaRole.REPLICA:
            return frozenset({self._membership.broker_id})
        source = self.port.source
        if source is None:
            return frozenset()
        return source.sync_set.members & self.port.replicas.keys() - {self._membership.broker_id}

    @property
    def holds_lease(self) -> bool:
        """Whether the master may answer what two masters must never answer at a time.

        Not where its store has failed: what it took would be in no log, and the next master would know nothing of it.
        """
        if self.role is not ReplicaRole.MASTER or self.store.failure is not None:
            return False
        return self.lease.is_held(self.view.epoch, _now_s())

    @property
    def takeover_left_s(self) -> float:
        """Seconds until the master before cannot serve in order any more what is served in order."""
        return max(self._ordered_from_s - _now_s(), 0.0)

    def heartbeat(self, *, is_goodbye: bool = False) -> BrokerHeartbeat:
        """What this replica tells the controllers of itself.

        A store that has failed is a goodbye until the next start: such a master would refuse everything, and such a
        replica would have nothing of what it acknowledges.
        """
        membership, log = self._membership, self.log
        # Also where the store was opened again: what a disk forgot that failed once is not known.
        self._has_failed = self._has_failed or self.store.failure is not None
        return BrokerHeartbeat(
            membership.cluster,
            membership.address,
            membership.name,
            membership.broker_id,
            max(log.epochs.epoch, 0),
            log.end,
            self.store.confirmed_log_offset,
            priority=self._options.priority,
            is_goodbye=is_goodbye or self._has_failed,
            is_damaged=self.mender.is_damaged,
        )

    async def hand_over(self, target: int | None = None) -> MasterView:
        """Have another replica elected, by default the one that has most of the log; the set from then on.

        Nothing is lost: requests are refused first, so that they go elsewhere, and all that was stored is confirmed.
        Raises NOT_MASTER, ELECT_MASTER_FAILED, REPLICAS_TIMEOUT; this replica goes on as the master then.
        """
        async with self._changing:
            source = self.port.source
            if source is None or self.role is not ReplicaRole.MASTER:
                raise ConnectionFailed("NOT_MASTER", "This broker is not the master of its set.")
            sync_set = source.sync_set
            others = sync_set.members - {self._membership.broker_id}
            chosen = target or max(others, key=lambda one: sync_set.ack_of(one) or 0, default=0)
            if chosen not in others:
                words = f"Replica {chosen} cannot take over: in the set are {sorted(others)} beside the master."
                raise NameRefused("ELECT_MASTER_FAILED", words)
            try:
                await self._settle(is_last=False)
                view = await self._membership.elect(chosen)
            except MillstreamError:
                await self._on_lead(self.broker, self.view)
                raise
        self.note_view(view)
        return view

    async def _settle(self, *, is_last: bool) -> None:
        """Take no more requests, and wait until all that was stored is confirmed. Raises REPLICAS_TIMEOUT."""
        await self._on_yield(is_last)
        self.broker.write_state()
        await self._own.await_confirmed(HANDOVER_S)

    async def leave(self) -> None:
        """Let another replica take over, before the port is closed; replicas are still answered."""
        self._changes.close()
        async with self._changing:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        follower, was_alone = self._follower, self._is_alone()
        await self._stop_following()
        with contextlib.suppress(MillstreamError):
            if self.role is ReplicaRole.MASTER:
                await self._settle(is_last=was_alone)
            elif follower is not None:
                await follower.leave()
        with contextlib.suppress(MillstreamError):
            if self._membership.broker_id:
                await self._membership.say_goodbye(self.heartbeat(is_goodbye=True))
        if self.role is ReplicaRole.MASTER and not was_alone:
            await self._await_successor()

    async def _await_successor(self) -> None:
        """Refuse requests for a while, once another replica is the master: who gets no answer would not know whether
        its request was done."""
        for _ in range(round(HANDOVER_S / _AFTER_TROUBLE_S)):
            with contextlib.suppress(MillstreamError):
                if (await self._membership.find_master()).master_id not in (None, self._membership.broker_id):
                    break
            await asyncio.sleep(_AFTER_TROUBLE_S)
        await asyncio.sleep(GRACE_S)

    async def close(self) -> None:
        """Close the store; after `leave`."""
        self.port.close()
        await self._membership.lines.close()
        await self._own.close()

    # the store

    def _needed_by_set(self) -> int:
        """A replica keeps what its master keeps: that one knows what delayed messages and transactions need."""
        follower = self._follower
        if self.role is ReplicaRole.MASTER:
            return self.store.written_log_offset
        return 0 if follower is None else follower.follower.master_start

    async def _carry_out(self, step: Step) -> None:
        """Cut the log, or start over, as the follower found."""
        if step.next is NextStep.BEGIN_ANEW:
            await self._own.begin_anew(*await self._fetch_seed())
            return
        try:
            await self._own.cut(step.log_offset)
        except StoreError as error:
            if error.name != "CUT_REFUSED":
                raise
            _log.error("The replica begins anew, because its log cannot be cut: %s", error)
            await self._own.begin_anew(*await self._fetch_seed())

    async def _fetch_seed(self) -> tuple[ReplicaSeed, dict[str, bytes]]:
        assert self.view.address is not None
        connection = await RemotingConnection.open(
            address_of(self.view.address), credentials=self._credentials, tls=self._tls
        )
        try:
            return await fetch_seed(connection)
        finally:
            await connection.close()

    def read_range(self, asked: RangeRequest) -> SoundRange:
        """A part of the log for a replica whose own bytes are damaged, as far as one answer holds it.

        Raises REPLICA_REFUSED where this log is not known to be the same there, RECORD_DAMAGED, OSError.
        """
        log, name = self.log, (self._membership.cluster, self._membership.name)
        epoch = None if asked.epoch == NO_EPOCH else EpochStart(asked.epoch, asked.epoch_start)
        if (asked.cluster, asked.name) != name or not log.start <= asked.start < asked.end <= log.end:
            words = f"This replica has the log of {name[1]} from {log.start} to {log.end}."
            raise NameRefused("REPLICA_REFUSED", words)
        if log.epochs.at(asked.end - 1) != epoch:
            words = f"The log before {asked.end} is not of epoch {asked.epoch}, which began at {asked.epoch_start}."
            raise NameRefused("REPLICA_REFUSED", words)
        try:
            return self.store.mending.read_range(asked.start, asked.end)
        except StoreError:
            self.mender.suspect(asked.start)
            raise

    async def make_seed(self) -> bytes:
        """What a replica needs to start over, encoded. Raises NOT_MASTER, REPLICA_TOO_FAR_BEHIND."""
        if self.role is not ReplicaRole.MASTER:
            raise ConnectionFailed("NOT_MASTER", "This broker is not the master of its set.")
        await self.broker.maintenance.retain()
        return make_seed(self.directory, self.log)

    # roles

    async def _live(self) -> None:
        reason = ""
        while True:
            try:
                await self._find_place()
                break
            except MillstreamError as error:
                if str(error) != reason:
                    _log.warning("The broker has no place in its set yet: %s", error)
                reason = str(error)
                await asyncio.sleep(ASK_S)
        while True:
            self._news.clear()
            try:
                async with self._changing:
                    await self._change()
            except Exception:  # noqa: BLE001 - the task's edge: whatever it is, the broker must find its role
                _log.exception("The broker cannot take its role; it tries again.")
                await asyncio.sleep(ASK_S)
                async with self._changing:
                    await self._yield()
                self.view = MasterView(None, None, self.view.epoch, frozenset(), -1)
                continue
            if self._latest.order > self.view.order or self._step is not None:
                continue
            wait_s = _AFTER_TROUBLE_S if self._asks or self.view.master_id is None else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()

    async def _change(self) -> None:
        """One change of what this replica is or does, if one is due."""
        if not self._own.is_open:
            await self._own.open()
        if self._latest.order > self.view.order or self._latest.master_id != self.view.master_id:
            # Where the master stays the same one its follower's step is still to be done.
            await self._take_view(self._latest)
        elif self._step is not None:
            step = self._step
            words = "The log went on otherwise than that of the master: %s at %d."
            _log.warning(words, step.next.value, step.log_offset)
            await self._stop_following()
            await self._carry_out(step)
            self._follow(self.view)
        elif self._own.must_rebuild and self.role is ReplicaRole.REPLICA:
            await self._stop_following()
            await self._own.reopen()
            self._follow(self.view)
        elif self._asks or self.view.master_id is None:
            await self._ask_for_master()

    async def _find_place(self) -> None:
        membership = self._membership
        await membership.enter()
        self.note_view(await membership.register())
        membership.lines.on_beat = self._note_beat
        membership.lines.start(self.heartbeat)

    def _ask_soon(self) -> None:
        self._asks = True
        self._news.set()

    async def _ask_for_master(self) -> None:
        self._asks = False
        membership = self._membership
        try:
            view = await membership.find_master()
            if view.master_id is None:
                view = await membership.elect()
        except MillstreamError as error:
            _log.info("No master is known: %s", error)
            return
        self.note_view(view)

    def _note_beat(self, answer: RemotingCommand, sent_s: float) -> None:
        if answer.code != ResponseCode.SUCCESS:
            return
        epoch = optional_integer(answer.ext, "masterEpoch", 0)
        if (epoch, optional_integer(answer.ext, "syncStateSetEpoch", 0)) > self._latest.order:
            self._ask_soon()
        lease_ms = optional_integer(answer.ext, LEASE_FIELD, 0)
        if lease_ms and self.role is ReplicaRole.MASTER and epoch == self.view.epoch:
            self.lease.renew(self.view.epoch, sent_s, lease_ms / 1000)
            self._has_lease.set()

    async def _take_view(self, view: MasterView) -> None:
        is_own = view.master_id == self._membership.broker_id
        if is_own and view.address != self._membership.address:
            _log.error("Another broker, at %s, has the identity of this one: stop one of them.", view.address)
            await self._yield()
            self.view = view
            return
        if is_own and self.role is ReplicaRole.MASTER and view.epoch == self.view.epoch:
            self.view = view
            self._note_set(view)
        elif is_own:
            await self._lead(view)
        elif view.master_id is None:
            await self._yield()
            self.view = view
        elif view.epoch > self.view.epoch or view.master_id != self.view.master_id:
            await self._yield()
            self.view = view
            self._follow(view)
        else:
            self.view = view

    # master

    async def _lead(self, view: MasterView) -> None:
        began_s = _now_s()
        # Also where the same replica led the epoch before, or was about to: what others heard then holds no more.
        await self._yield()
        # Users among others: from here on replicas ask this one.
        self.broker.follow()
        broker_id = self._membership.broker_id
        is_first = not self.log.epochs.starts
        start = self.log.begin_epoch(view.epoch, broker_id)
        if is_first:
            # Without replicas nothing of the log said where they were.
            self.broker.write_past_deletions()
        sync_set = SyncSet(
            broker_id,
            view.epoch,
            view.members,
            view.set_epoch,
            policy=self._options.policy,
            confirmed=self.store.confirmed_log_offset,
            epoch_start=start,
            now_s=_now_s(),
        )
        source = LogSource(
            self.log, sync_set, self._membership.cluster, self._membership.name, may_confirm=self._may_confirm
        )
        self.view = view
        previous_lease_s = LEASE_S if view.previous_lease_ms is None else view.previous_lease_ms / 1000
        self._ordered_from_s = _now_s() + takeover_wait_s(previous_lease_s)
        self.port.open(source)
        self.store.on_written.append(self._note_written)
        self.store.on_confirmed.append(self.port.note_confirmed)
        self._note_written()
        end = self.store.written_log_offset
        while self.store.confirmed_log_offset < end:
            # Nothing of what an earlier master may have acknowledged is hidden from those who ask from here on.
            if self._latest.epoch > view.epoch:
                return
            if self._asks:
                # The notice of a later election may be lost; until then nobody confirms what this one has.
                await self._ask_for_master()
            await asyncio.sleep(0.002)
        await self.broker.start()
        self.broker.check_admission = self._check_admission
        self.role = ReplicaRole.MASTER
        self._membership.lines.beat_now()
        await self._await_lease()
        await self._on_lead(self.broker, view)
        words = "This broker is the master of %s, epoch %d, %.3f s after the controller's word."
        _log.warning(words, self._membership.name, view.epoch, _now_s() - began_s)
        self._settled.set()

    async def _await_lease(self) -> None:
        """Wait a little for the answer to a heartbeat: clients that come before it would be refused."""
        self._has_lease.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEASE_WAIT_S):
                await self._has_lease.wait()

    def _may_confirm(self) -> bool:
        """Whether what some replicas have counts: a former master is kept from that by its lease alone."""
        return self._options.policy.all_in_set or self.role is not ReplicaRole.MASTER or self.holds_lease

    def _check_admission(self) -> None:
        """Refuse messages that too few replicas would have."""
        source, policy = self.port.source, self._options.policy
        if source is None or not (policy.all_in_set or self.holds_lease):
            raise ConnectionFailed("NOT_MASTER", "This broker is not the master of its set any more.")
        if not source.sync_set.takes_writes:
            words = f"The set is {sorted(source.sync_set.members)}; {policy.min_in_sync} members are demanded."
            raise StoreError("TOO_FEW_REPLICAS", words)

    def _note_written(self) -> None:
        source = self.port.source
        if source is not None:
            source.note_own()
            self.port.wake_soon()

    def _is_alone(self) -> bool:
        source = self.port.source
        return source is None or source.sync_set.required == {self._membership.broker_id}

    def _note_set(self, view: MasterView) -> None:
        source = self.port.source
        if source is not None:
            source.sync_set.note_set(view.members, view.set_epoch)
            source.note_own()
            self._changes.review()

    async def _yield(self) -> None:
        """Be the master no more, or give up to become it."""
        self._settled.clear()
        await self._stop_following()
        if self.port.source is None:
            return
        self.lease.drop()
        was_master, self.role = self.role is ReplicaRole.MASTER, ReplicaRole.REGISTERING
        if was_master:
            await self._on_yield(False)
        self.port.close()
        for listeners, listener in (
            (self.store.on_written, self._note_written),
            (self.store.on_confirmed, self.port.note_confirmed),
        ):
            if listener in listeners:
                listeners.remove(listener)
        await self._own.reopen()

    # replica

    def _follow(self, view: MasterView) -> None:
        assert view.address is not None
        follower = Follower(self.log, self._membership.identity, view.epoch, self._own.append)
        follower.damaged_bytes = lambda: self.mender.damaged_bytes
        self._follower = FollowerTask(
            follower,
            view.address,
            self._options.policy.replica_ack,
            credentials=self._credentials,
            tls=self._tls,
            on_trouble=lambda _: self._ask_soon(),
        )
        self.role = ReplicaRole.REPLICA
        self._following = asyncio.get_running_loop().create_task(self._run_follower(), name="follow-master")
        self._on_follow(view)
        self._settled.set()

    async def _run_follower(self) -> None:
        assert self._follower is not None
        self._step = await self._follower.run(self.store.flush_log)
        self._news.set()

    async def _stop_following(self) -> None:
        following, self._following, self._follower = self._following, None, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        self._step = None

    # upkeep

    async def _keep_up(self) -> None:
        """Apply the state, flush, and write checkpoints, as long as this is no master: a started broker does it."""
        loop = asyncio.get_running_loop()
        kept_s, reason = loop.time(), ""
        while True:
            await asyncio.sleep(FOLLOW_S)
            try:
                async with self._changing:
                    if self.role is not ReplicaRole.REPLICA:
                        continue
                    self.broker.follow()
                    await self.broker.follow_staged()
                    await asyncio.to_thread(self.store.flush)
                    if loop.time() - kept_s >= KEEP_S:
                        kept_s = loop.time()
                        await self.broker.keep_followed()
                reason = ""
            except MillstreamError as error:
                if str(error) != reason:
                    _log.error("The replica's upkeep has to wait: %s", error)
                reason = str(error)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            source = self.port.source
            if source is not None:
                self.port.close_silent()
                source.sync_set.tick(_now_s())
                source.note_own()
                self._changes.review()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
