"""One broker: creates, connects, starts and closes its parts, and offers five services to its callers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias

from millstream.broker.access_file import AccessState
from millstream.broker.clock_steps import clock_stepped
from millstream.broker.cold_owner import ColdOwner
from millstream.broker.cold_tier import ColdTier, TieredOptions
from millstream.broker.column_checks import ColumnChecks
from millstream.broker.column_copies import ColumnCopies
from millstream.broker.data_directory import check_directory, document, note_directory
from millstream.broker.delivery.pending_transactions import SavedTransactions
from millstream.broker.delivery.redrive import RedrivenTable, Redriver
from millstream.broker.delivery.retries import Retries
from millstream.broker.delivery.sender import Sender
from millstream.broker.delivery.staged_messages import needed_from
from millstream.broker.delivery.timers import Timers
from millstream.broker.delivery.transactions import TransactionOptions, Transactions
from millstream.broker.delivery_service import DeliveryService
from millstream.broker.light_queues.dispatcher import RouteDispatcher
from millstream.broker.light_queues.light_queues import LightQueues
from millstream.broker.maintenance import Maintenance, retain
from millstream.broker.permission import BrokerPermission
from millstream.broker.pop.dead_letters import DeadLetterQueues
from millstream.broker.pop.lite_popper import LitePopper
from millstream.broker.pop.lite_topics import LiteExpiry, LiteTopics
from millstream.broker.pop.popper import Popper
from millstream.broker.pop.run_popper import RunPopper
from millstream.broker.queues.consumer_groups import ConsumerGroups, RequestModes
from millstream.broker.queues.group_offsets import GroupOffsets
from millstream.broker.queues.ledger import MAX_IN_FLIGHT
from millstream.broker.queues.long_polling import EVERY_QUEUE, MAX_WAITING, MAX_WAITING_PER_KEY, LongPolls
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.puller import QueuePuller
from millstream.broker.queues.queue_locks import QueueLocks
from millstream.broker.queues.reader import Queues, Reader
from millstream.broker.queues.reads import ReplicaQueues
from millstream.broker.queues.ready_bytes import ReadyBytes
from millstream.broker.queues.retry_lines import stored_topic
from millstream.broker.queues.topics import RETRY_PREFIX, StaticTopics, TopicRegistry, own_topics
from millstream.broker.state.broker_state import BrokerState
from millstream.broker.state.state_log import STATE_TOPIC, StateLog
from millstream.broker.state.state_table import StateTable
from millstream.broker.state.topic_deletions import DELETION, TopicDeletions
from millstream.broker.static_topics.logic_queues import LogicQueues
from millstream.broker.static_topics.peers import Peers
from millstream.broker.static_topics.queue_router import QueueRouter
from millstream.broker.static_topics.segments import Segments
from millstream.broker.statistics import Statistics
from millstream.broker.traffic import Traffic
from millstream.model.clock import BackedClock, Clock, SystemClock, WatchedClock
from millstream.model.errors import StartRefused
from millstream.model.lite import bind_topic_of
from millstream.model.message import Address
from millstream.protocol.remoting.administration.broker_report import SetReport
from millstream.security.users import AccessBook
from millstream.store.appender import Appender
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.store.snapshot import Snapshot
from millstream.tiered.columns.column_work import ColumnWork
from millstream.tiered.objects import ObjectStore

__all__ = ["Broker", "BrokerOptions", "SuggestReader"]

SuggestReader: TypeAlias = Callable[[int, int], int]
"""The id of the replica to read a queue from, 0 for the master, by the queue's number and the reader's backlog in bytes
of the log."""

_log = logging.getLogger(__name__)

DEFAULT_ADDRESS = Address("127.0.0.1", 10911)

FOLLOW_STEPS = 128
"""Parts of the log, of up to 1 MiB, that a replica looks at for delayed messages and transactions at one time."""

FOLLOWED_ROUTES = 1024
"""Routes of light queues that a replica takes in at one time, or a few more."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Settings of one broker; limits are numbers of deliveries and of waiting requests."""

    store: StoreOptions = field(default_factory=StoreOptions)
    auto_create_groups: bool = True
    offer_own_topics: bool = False
    """Whether tools and clients find the topics of `own_topics`."""
    max_in_flight: int = MAX_IN_FLIGHT
    """Deliveries of one (group, topic, queue) that wait for their acknowledgement at most."""
    max_waiting: int = MAX_WAITING
    max_waiting_per_key: int = MAX_WAITING_PER_KEY
    offset_save_interval_s: float = 0.5
    """Seconds between two writes of changed offsets to the log; what a crash takes of them is delivered again."""
    transactions: TransactionOptions = field(default_factory=TransactionOptions)
    tiered: TieredOptions = field(default_factory=TieredOptions)
    """What goes up into the object store, where there is one."""


class Broker:
    """A broker in `directory`: `store` holds the messages, `config` topics, groups and offsets.

    It hands out five services: `topics` (what topics there are), `groups` (consumer groups and what their members
    share), `queues` (reading queues, and the offsets of groups in them), `delivery` (sending, popping, transactions,
    what comes back) and `maintenance` (the tasks that keep it going, and how it fares). The last three are there once
    `start` has returned.

    Every call is from the event loop's thread, between `start` and `close`. Refusals are raised as
    `millstream.model.errors`. A broker is started once: for another run make another one. `peers` are the other
    brokers, which hold older parts of queues that moved here; whoever made them closes them. `check_columns` judges the
    columns that topics declare, see `ColumnCopies`.
    """

    queues: QueueRouter
    replica_queues: ReplicaQueues
    """What a replica's broker lets read, from `attach` on."""
    delivery: DeliveryService
    maintenance: Maintenance

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        options: BrokerOptions | None = None,
        clock: Clock | None = None,
        advertised: Address = DEFAULT_ADDRESS,
        peers: Peers | None = None,
        open_objects: Callable[[], ObjectStore] | None = None,
        make_column_work: Callable[[], ColumnWork] | None = None,
        check_columns: Callable[[str, str], None] | None = None,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.advertised = advertised
        self.options = options or BrokerOptions()
        self._store_options = replace(self.options.store, store_host=_store_host(advertised, self.options.store))
        self._is_started = False
        self._unwatched: Clock = clock or SystemClock()
        self.clock = WatchedClock(self._unwatched)
        self.clock.on_step.append(self._note_step)
        self.directory = directory
        self._peers = peers
        self._static = StaticTopics(document(directory, "config/static-topics.json"), name)
        self.topics = TopicRegistry(document(directory, "config/topics.json"), self._static)
        self._request_modes = RequestModes(document(directory, "config/request_modes.json"))
        self._locks = QueueLocks()
        self.groups = ConsumerGroups(
            document(directory, "config/groups.json"),
            self._request_modes,
            self._locks,
            self.clock,
            auto_create=self.options.auto_create_groups,
        )
        self._permission = BrokerPermission(document(directory, "config/permission.json"))
        self._polls = LongPolls(per_key=self.options.max_waiting_per_key, total=self.options.max_waiting)
        offsets = document(directory, "config/offsets.json")
        self._offsets = OffsetTable(offsets, max_in_flight=self.options.max_in_flight)
        self._statistics = Statistics()
        self._traffic = Traffic(self._statistics, self.clock)
        self._redriven = RedrivenTable(document(directory, "config/redriven.json"))
        self._access = AccessState(document(directory, "config/access.json"))
        self._state = BrokerState(Snapshot(directory / "config" / "state.json"))
        self._state.pass_over(DELETION)
        self._deletions = TopicDeletions()
        self.cold_owner = ColdOwner(
            document(directory, "config/cold_owner.json"),
            cluster=cluster,
            broker=name,
            place=f"{directory.absolute()} on {socket.gethostname()}",
            clock=self.clock,
        )
        self.cold = ColdTier(
            document(directory, "config/cold.json"),
            open_objects,
            self.cold_owner,
            cluster=cluster,
            broker=name,
            clock=self.clock,
            options=self.options.tiered,
        )
        self.columns = ColumnCopies(
            document(directory, "config/columns.json"),
            make_column_work,
            cluster=cluster,
            broker=name,
            clock=self.clock,
            keep_hours=self.options.tiered.keep_hours,
            check_columns=check_columns,
        )
        self.column_checks = ColumnChecks(self.cold, self.columns, cluster=cluster, broker=name, clock=self.clock)
        self._state.add(
            self.topics.table,
            self._static.table,
            self.groups.table,
            self._permission.table,
            self._request_modes.table,
            self._offsets.table,
            self._redriven.table,
            self._access.table,
            self.cold.table,
            self.cold_owner.table,
            self.columns.table,
        )
        self.report_set: Callable[[], SetReport | None] = lambda: None
        """The broker's set, where it is the master of one; put there by whoever leads the set."""
        self.suggest_reader: SuggestReader | None = None
        """Where a reader is to pull from next; put there by whoever knows the replicas."""
        self._is_attached = False
        self._has_staged = False
        self.topics.before_change.append(self.columns.check_change)
        self.topics.before_delete.append(self._forget_topic)
        self.groups.before_delete.append(self._forget_group)

    @property
    def users(self) -> AccessBook:
        """The users and their policies; whether they are asked for is up to the ports."""
        return self._access.book

    async def start(self) -> None:
        """Open the store, recover it and read topics, groups and offsets. Raises `StartRefused`, `StoreError`.

        A directory that lacks what it had is refused before anything of it is changed.
        """
        if not self._is_attached:
            check_directory(self.directory)
        async with AsyncExitStack() as opened:
            await self._open(opened)
            self._connect()
            note_directory(self.directory)
            if self.cold.is_enabled:
                may_join = self.columns.map.may_join
                self.cold.start(self._store, self.topics, self._state_log, self._encode_documents, may_join)
                self.columns.start(self.cold.map, self.topics, self._state_log, self.cold)
            # Not before: what timers deliver meanwhile finds nobody who waits, and parts that are not there yet.
            self._appender.on_visible = self._visible
            opened.pop_all()
        self._is_started = True
        self.maintenance.start(offset_save_interval_s=self.options.offset_save_interval_s)

    async def _open(self, opened: AsyncExitStack) -> None:
        """Take up what earlier runs left; `opened` closes it again where the start fails."""
        if self._is_attached:
            self._state.follow()
            self._store.on_confirmed.remove(self._polls.wake_pulls)
        else:
            store = await asyncio.to_thread(
                MessageStore.open, self.directory / "store", self._store_options, clock=self._unwatched
            )
            opened.callback(store.close)
            self._load_state(store)
        self._light_queues = LightQueues(
            self._dispatcher, self.groups, self._offsets, self._store, self._deletions, self._polls, self.clock
        )
        self._light_queues.load()
        self.topics.find_light_queue = self._light_queues.find
        self.topics.light_queues_of = self._light_queues.queues_of
        self.groups.find_light_group = self._light_queues.find_group
        self.groups.light_groups = self._light_queues.groups
        if self.options.offer_own_topics:
            self.topics.offer(own_topics(self.name, self.cluster))
        self._offsets.limit(self._end_of, self.clock.now_ms())
        self._redriven.limit(self._end_of)
        self._appender = Appender(self._store)
        opened.push_async_callback(self._appender.close)
        self._light_queues.start(self._appender)
        opened.push_async_callback(self._light_queues.close)
        self._store.on_confirmed.append(self._dispatcher.follow)
        self._open_staged()
        await self._timers.start(self._appender)
        opened.push_async_callback(self._timers.close)
        await self._transactions.start(self._appender)
        opened.push_async_callback(self._transactions.close)
        self._lite_topics = LiteTopics()
        ages = BackedClock(self.clock)
        self._lite_expiry = LiteExpiry(
            self.topics, self._offsets, self._store, self._deletions, self._lite_topics, ages
        )
        self._lite_expiry.load()

    def _load_state(self, store: MessageStore) -> None:
        self._store = store
        self._state_log = log = StateLog(store, self._store_options.store_host)
        self._deletions.bind(log)
        self._dispatcher = RouteDispatcher(store)
        self._state.load(log)
        store.pins.append(self._pin_state)
        if self.cold.is_enabled:
            store.pins.append(self.cold.first_needed)

    def _pin_state(self) -> int:
        """The first log offset with a change that is in no document."""
        return needed_from(self._store, STATE_TOPIC, self._state.saved_offset)

    def attach(self, store: MessageStore) -> None:
        """Follow the state in the log of an open store, as a replica's broker does until `start` or `detach`.

        Whoever opened the store closes it. Raises STORE_FORMAT, RECORD_DAMAGED, and DATA_MISSING as `start` does.
        """
        check_directory(self.directory)
        self._load_state(store)
        self._is_attached = True
        note_directory(self.directory)
        if self.cold.is_enabled:
            # What a replica's log has let go is read from the object store there as well.
            self.cold.start_reading(store)
        puller = QueuePuller(self.topics, self._make_reader(), self._polls)
        self.replica_queues = ReplicaQueues(self.topics, self.groups, Queues(self.topics, store), puller)
        store.on_confirmed.append(self._polls.wake_pulls)

    def follow(self) -> None:
        """Apply the changes of the state that all replicas have by now. Raises as `attach` does."""
        self._state.follow()
        self._dispatcher.follow(FOLLOWED_ROUTES)

    async def follow_staged(self) -> None:
        """Take up what all replicas have of delayed messages and transactions, so that a start has little to read.

        At most `FOLLOW_STEPS` parts of the log, beside other work. Raises as `start` does.
        """
        self._open_staged()
        for _ in range(FOLLOW_STEPS):
            is_behind = self._timers.take_up_some() | self._transactions.take_up_some()
            await asyncio.sleep(0)
            if not is_behind:
                return

    async def keep_followed(self) -> None:
        """Save what was applied and let old messages go, as a broker that is started does by itself.

        Raises STORE_FAILED, DISK_FULL.
        """
        if self._has_staged:
            await self._timers.save_followed()
            await self._transactions.save_followed()
        await retain(self._store, self._state, self.topics)

    @property
    def check_admission(self) -> Callable[[], None] | None:
        """Raises what refuses messages before they are written; None admits all."""
        return self._appender.check_admission

    @check_admission.setter
    def check_admission(self, check: Callable[[], None] | None) -> None:
        self._appender.check_admission = check

    async def _encode_documents(self) -> dict[str, bytes]:
        """The documents that a manifest has, by their parts of the data directory: all but users, and what passes."""
        tables: dict[str, StateTable[Any, Any]] = {
            "config/topics.json": self.topics.table,
            "config/static-topics.json": self._static.table,
            "config/groups.json": self.groups.table,
            "config/request_modes.json": self._request_modes.table,
            "config/offsets.json": self._offsets.table,
            "config/cold.json": self.cold.table,
            "config/columns.json": self.columns.table,
        }
        found: dict[str, bytes] = {}
        for part, table in tables.items():
            found[part] = await table.encode()
            await asyncio.sleep(0)
        return found

    def write_past_deletions(self) -> None:
        """Write to the log which topics were deleted while the log did not say so. Raises STORE_FAILED, DISK_FULL."""
        self._deletions.write_past(self._store.deletions)

    def write_state(self) -> None:
        """Write what changed of offsets and groups to the log, as before another replica becomes the master.

        Raises STORE_FAILED, DISK_FULL.
        """
        self.groups.save_unsaved()
        self._offsets.write_changes()

    async def detach(self) -> None:
        """Let go of the store and write nothing more: another replica is the master now. The store stays open.

        Who waits for an answer hears REPLICAS_TIMEOUT, or that the connection is closed.
        """
        self._polls.close()
        was_started, self._is_started = self._is_started, False
        if was_started:
            # First: what is under way elsewhere may wait for replicas that have another master.
            await self._appender.close()
        await self.columns.close()
        await self.cold.close()
        if was_started:
            await self.maintenance.close()
            await self._light_queues.close()
            self._store.on_confirmed.remove(self._dispatcher.follow)
            self._lite.close()
            await self._timers.close()
            await self._transactions.close()
        if self._is_attached:
            self._is_attached = False
            self._store.pins.remove(self._pin_state)
            if self.cold.is_enabled:
                self._store.pins.remove(self.cold.first_needed)
            if self._polls.wake_pulls in self._store.on_confirmed:
                self._store.on_confirmed.remove(self._polls.wake_pulls)

    def _open_staged(self) -> None:
        """Make what waits for its time or for the end of its transaction, unless it is followed already."""
        if self._has_staged:
            return
        directory = self.directory / "store" / "timers"
        try:
            self._timers = Timers(self._store, self.topics, directory, self.clock, self._statistics)
        except OSError as error:
            raise StartRefused(
                "DATA_DIRECTORY_NOT_WRITABLE", f"The timers in {directory} cannot be used: {error}."
            ) from error
        saved = SavedTransactions(Snapshot(self.directory / "config" / "transactions.json"))
        self._transactions = Transactions(
            self._store, self.topics, saved, self.clock, self.options.transactions, self._statistics
        )
        # Without a store that somebody else keeps open they are rebuilt with each start.
        self._has_staged = self._is_attached

    def _connect(self) -> None:
        """Make the services that answer clients."""
        reader = self._make_reader()
        self._sender = Sender(
            self.topics,
            self._appender,
            self._timers,
            self._transactions,
            self._lite_expiry,
            self.clock,
            self._store_options.store_host,
            self.name,
            self._statistics,
            self._static,
            self._light_queues,
        )
        dead_letters = DeadLetterQueues(self.topics, self._appender, self._statistics)
        self._lite = LitePopper(
            self.topics,
            self.groups,
            self._offsets,
            reader,
            self._polls,
            dead_letters,
            self._lite_topics,
            self.name,
            self.clock,
        )
        self._popper = Popper(
            self.topics,
            self.groups,
            self._offsets,
            reader,
            self._polls,
            dead_letters,
            self._lite,
            self.name,
            self.clock,
            self._light_queues,
        )
        queues = Queues(self.topics, self._store)
        puller = QueuePuller(self.topics, reader, self._polls)
        group_offsets = GroupOffsets(self.topics, self.groups, self._offsets, reader, self._polls, self.clock)
        segments = Segments(self.name, queues, puller, self._offsets, group_offsets, self._peers)
        self._logic = LogicQueues(self.topics, self._static, segments, self._popper, self._polls, self._appender)
        self._redriver = Redriver(reader, self._sender, self._redriven)
        self.queues = QueueRouter(
            self.name,
            self.topics,
            self.groups,
            queues,
            puller,
            self._offsets,
            group_offsets,
            self._logic,
            self._statistics,
            ReadyBytes(group_offsets),
        )
        self.delivery = DeliveryService(
            self.name,
            self.topics,
            self._permission,
            self._appender,
            self._sender,
            self._popper,
            RunPopper(self._popper),
            self._lite,
            self._logic,
            self._timers,
            self._transactions,
            self._make_retries(dead_letters),
            self._redriver,
            self._statistics,
        )
        self.maintenance = Maintenance(
            self._store,
            self.topics,
            self.groups,
            self._offsets,
            self._state,
            self._lite_expiry,
            self._light_queues,
            self._traffic,
            self._statistics,
            self._permission,
            self._timers,
            self._transactions,
            self._polls,
            self.clock,
        )

    def _make_reader(self) -> Reader:
        return Reader(self._store, self.cold.fetch if self.cold.is_enabled else None)

    def _make_retries(self, dead_letters: DeadLetterQueues) -> Retries:
        return Retries(
            self.topics,
            self.groups,
            self._store,
            self._appender,
            self._timers,
            dead_letters,
            self._locks,
            self.clock,
            self._store_options.store_host,
            self.name,
            self._statistics,
        )

    async def close(self) -> None:
        """End the waiting requests, save the offsets and close the store; nothing if it was not started.

        A broker that was attached is detached instead.
        """
        self._polls.close()
        if not self._is_started:
            return
        await self.columns.close()
        await self.cold.close()
        await self.maintenance.close()
        self._is_started = False
        await self._light_queues.close()
        self._lite.close()
        await self._timers.close()
        await self._transactions.close()
        try:
            await self._appender.close()
        finally:
            try:
                if self._store.failure is None:
                    self.write_state()
                    self._state.save()
            finally:
                self._store.close()

    def _note_step(self, step_ms: int) -> None:
        """Keep what waits for a span of time, whose ends are wall times, as far away as it was."""
        _log.warning("%s", clock_stepped(step_ms))
        if not self._is_started:
            return
        self._offsets.shift(step_ms)
        self._lite.shift(step_ms)
        self._transactions.shift(step_ms)

    def _visible(self, pairs: Sequence[tuple[str, int]]) -> None:
        self._light_queues.lengths.drop_excess(pairs)
        self._polls.wake(pairs)
        self._timers.note_arrivals(pairs)
        self._transactions.note_arrivals(pairs)
        self._lite.note_arrivals(pairs)
        for topic, _ in pairs:
            if topic.startswith(RETRY_PREFIX):
                self._polls.wake_everywhere(topic.removeprefix(RETRY_PREFIX), EVERY_QUEUE)

    def _end_of(self, topic: str, queue_id: int) -> int | None:
        place = stored_topic(topic)
        return None if self.topics.find(bind_topic_of(place)) is None else self._store.max_offset(place, queue_id)

    def _forget_topic(self, name: str) -> None:
        # On the disk before the topic goes: a new topic of that name must not inherit offsets after a crash.
        self._offsets.forget(topic=name)
        self._offsets.write_changes()
        self._static.forget(name)
        self._lite_expiry.drop_topic(name)
        self._popper.forget(topic=name)
        self._sender.forget(name)
        self._statistics.forget_topic(name)
        self._request_modes.forget(topic=name)
        self._redriver.forget(name)
        self.cold.forget_topic(name)
        self.columns.forget_topic(name)
        # The removal of the topic, which follows, brings it to the disk.
        self._deletions.write([name], durable=False)
        self._store.delete_topic(name)
        self._polls.wake_topic(name)

    def _forget_group(self, name: str) -> None:
        if self.topics.find(RETRY_PREFIX + name) is not None:
            self.topics.delete(RETRY_PREFIX + name)
        self._offsets.forget(group=name)
        self._offsets.write_changes()
        self._popper.forget(group=name)
        self._logic.pops.forget(group=name)
        self._statistics.forget_group(name)
        self._request_modes.forget(group=name)


def _store_host(advertised: Address, options: StoreOptions) -> Address:
    """Records carry an IP address; where the broker is advertised by a name they carry the store's own setting."""
    try:
        ip_address(advertised.host)
    except ValueError:
        return options.store_host
    return advertised
