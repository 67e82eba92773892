"""One broker: its store, its topics and groups, and what clients may ask of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path

from millstream.broker.clock_steps import clock_stepped
from millstream.broker.data_parts import check_directory, document, note_directory
from millstream.broker.dead_letters import DeadLetters
from millstream.broker.groups import GroupRegistry
from millstream.broker.lite_expiry import LiteExpiry
from millstream.broker.lite_popper import LitePopper
from millstream.broker.lite_topics import LiteTopics
from millstream.broker.logic_queues import LogicQueues
from millstream.broker.long_poll import EVERY_QUEUE, MAX_WAITING, MAX_WAITING_PER_KEY, LongPolls
from millstream.broker.offsets import GroupPosition, OffsetTable
from millstream.broker.own_topics import own_topics
from millstream.broker.peers import Peers
from millstream.broker.permission import BrokerPermission
from millstream.broker.pop import MAX_IN_FLIGHT
from millstream.broker.popper import Popper
from millstream.broker.positions import Positions
from millstream.broker.preview import Preview
from millstream.broker.puller import Puller
from millstream.broker.queue_locks import QueueLocks
from millstream.broker.queues import Queues
from millstream.broker.reader import Reader
from millstream.broker.redrive import Redriver
from millstream.broker.redriven import RedrivenTable
from millstream.broker.request_modes import RequestModes
from millstream.broker.retries import Retries
from millstream.broker.returned import stored_topic
from millstream.broker.saved_transactions import SavedTransactions
from millstream.broker.segments import Segments
from millstream.broker.sender import Sender
from millstream.broker.static_topics import StaticTopics
from millstream.broker.statistics import Statistics
from millstream.broker.timers import Timers
from millstream.broker.topics import RETRY_PREFIX, TopicRegistry
from millstream.broker.traffic import Traffic
from millstream.broker.transactions import TransactionOptions, Transactions
from millstream.broker.upkeep import Upkeep
from millstream.model.clock import BackedClock, Clock, SystemClock, WatchedClock
from millstream.model.errors import StartRefused
from millstream.model.group import GroupConfig
from millstream.model.lite import LiteSync, bind_topic_of
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    PullRequest,
    PullResult,
    PullStatus,
    SendReceipt,
)
from millstream.model.receipt import ReceiptHandle
from millstream.model.topic import Permission, TopicConfig
from millstream.model.transaction import Resolution
from millstream.protocol.trace import TRACE_TOPIC
from millstream.store.appender import Appender, Ended
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions
from millstream.store.snapshot import Snapshot
from millstream.transport.late_answers import Pace

__all__ = ["Broker", "BrokerOptions"]

_log = logging.getLogger(__name__)

DEFAULT_ADDRESS = Address("127.0.0.1", 10911)

MemberSource = Callable[[str], Iterable[tuple[str, str, str, int, str]]]
"""The members of a group: client id, address, language, version and protocol."""


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
    offset_save_interval_s: float = 5.0
    """Seconds between two saves of the offsets; what a crash takes of them is delivered again."""
    transactions: TransactionOptions = field(default_factory=TransactionOptions)


class Broker:
    """A broker in `directory`: `store` holds the messages, `config` topics, groups and offsets.

    Every call is from the event loop's thread, between `start` and `close`. Refusals are raised as
    `millstream.model.errors`. A broker is started once: for another run make another one.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        options: BrokerOptions | None = None,
        clock: Clock | None = None,
        advertised: Address = DEFAULT_ADDRESS,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.advertised = advertised
        self.options = options or BrokerOptions()
        self._store_options = replace(self.options.store, store_host=_store_host(advertised, self.options.store))
        self._unwatched: Clock = clock or SystemClock()
        self.clock = WatchedClock(self._unwatched)
        self.clock.on_step.append(self._stepped)
        self.directory = directory
        self.topics = TopicRegistry(document(directory, "config/topics.json"))
        self.static_topics = StaticTopics(document(directory, "config/static-topics.json"), name)
        self.peers: Peers | None = None
        """The other brokers, which hold older parts of queues that moved here; to be given before the start."""
        groups = document(directory, "config/groups.json")
        self.groups = GroupRegistry(groups, auto_create=self.options.auto_create_groups)
        self.permission = BrokerPermission(document(directory, "config/permission.json"))
        self.polls = LongPolls(per_key=self.options.max_waiting_per_key, total=self.options.max_waiting)
        offsets = document(directory, "config/offsets.json")
        self._offsets = OffsetTable(offsets, max_in_flight=self.options.max_in_flight)
        self.statistics = Statistics()
        self.traffic = Traffic(self.statistics, self.clock)
        self._redriven = RedrivenTable(document(directory, "config/redriven.json"))
        self.request_modes = RequestModes(document(directory, "config/request_modes.json"))
        self.member_sources: list[MemberSource] = []
        """Asked for the members of a group that the broker does not know itself, as those of a proxy."""
        self.locks = QueueLocks()
        self._upkeep: Upkeep | None = None
        self.topics.before_delete.append(self._forget_topic)
        self.groups.before_delete.append(self._forget_group)

    async def start(self) -> None:
        """Open the store, recover it and read topics, groups and offsets. Raises `StartRefused`, `StoreError`.

        A directory that lacks what it had is refused before anything of it is changed.
        """
        check_directory(self.directory)
        async with AsyncExitStack() as opened:
            await self._open(opened)
            self._connect()
            note_directory(self.directory)
            # Not before: what timers deliver meanwhile finds nobody who waits, and parts that are not there yet.
            self._appender.on_visible = self._visible
            opened.pop_all()
        self._upkeep = Upkeep(
            self.store, self.topics, self.groups, self._offsets, self._lite_expiry, self.traffic, self.clock
        )
        self._upkeep.start(offset_save_interval_s=self.options.offset_save_interval_s)

    async def _open(self, opened: AsyncExitStack) -> None:
        """Take up what earlier runs left; `opened` closes it again where the start fails."""
        self.store = await asyncio.to_thread(
            MessageStore.open, self.directory / "store", self._store_options, clock=self._unwatched
        )
        opened.callback(self.store.close)
        self.topics.load()
        if self.options.offer_own_topics:
            self.topics.offer(own_topics(self.name, self.cluster))
        self.static_topics.load()
        self.groups.load()
        self.permission.load()
        self._offsets.load(self._end_of, self.clock.now_ms())
        self._redriven.load(self._end_of)
        self.request_modes.load()
        self._appender = Appender(self.store)
        opened.push_async_callback(self._appender.close)
        await self._start_timers()
        opened.push_async_callback(self.timers.close)
        saved = SavedTransactions(Snapshot(self.directory / "config" / "transactions.json"))
        self.transactions = Transactions(
            self.store, self._appender, self.topics, saved, self.clock, self.options.transactions, self.statistics
        )
        await self.transactions.start()
        opened.push_async_callback(self.transactions.close)
        self._lite_topics = LiteTopics()
        ages = BackedClock(self.clock)
        self._lite_expiry = LiteExpiry(self.topics, self._offsets, self.store, self._lite_topics, ages)
        self._lite_expiry.load()

    async def _start_timers(self) -> None:
        directory = self.directory / "store" / "timers"
        try:
            self.timers = Timers(self.store, self._appender, self.topics, directory, self.clock, self.statistics)
            await self.timers.start()
        except OSError as error:
            raise StartRefused(
                "DATA_DIRECTORY_NOT_WRITABLE", f"The timers in {directory} cannot be used: {error}."
            ) from error

    def _connect(self) -> None:
        """Make the parts that answer clients."""
        self.queues = Queues(self.topics, self.store)
        self._reader = reader = Reader(self.store)
        self._sender = Sender(
            self.topics,
            self._appender,
            self.timers,
            self.transactions,
            self._lite_expiry,
            self.clock,
            self._store_options.store_host,
            self.name,
            self.statistics,
            self.static_topics,
        )
        dead_letters = DeadLetters(self.topics, self._appender, self.statistics)
        self._lite = LitePopper(
            self.topics,
            self.groups,
            self._offsets,
            reader,
            self.polls,
            dead_letters,
            self._lite_topics,
            self.name,
            self.clock,
        )
        self._puller = Puller(self.topics, reader, self.polls)
        self._popper = Popper(
            self.topics,
            self.groups,
            self._offsets,
            reader,
            self.polls,
            dead_letters,
            self._lite,
            self.name,
            self.clock,
        )
        self.preview = Preview(self._popper)
        self.retries = Retries(
            self.topics,
            self.groups,
            self.store,
            self._appender,
            self.timers,
            dead_letters,
            self.locks,
            self.clock,
            self._store_options.store_host,
            self.name,
            self.statistics,
        )
        self.positions = Positions(self.topics, self.groups, self._offsets, reader, self.polls, self.clock)
        segments = Segments(self.name, self.queues, self._puller, self._offsets, self.positions, self.peers)
        self.logic = LogicQueues(self.topics, self.static_topics, segments, self._popper, self.polls, self._appender)
        self.dead_letters = Redriver(reader, self._sender, self._redriven)

    async def close(self) -> None:
        """End the waiting requests, save the offsets and close the store; nothing if it was not started."""
        self.polls.close()
        if self._upkeep is None:
            return
        await self._upkeep.close()
        self._upkeep = None
        self._lite.close()
        await self.timers.close()
        await self.transactions.close()
        try:
            await self._appender.close()
        finally:
            try:
                self.groups.save_unsaved()
                self._offsets.save()
            finally:
                self.store.close()

    def _stepped(self, step_ms: int) -> None:
        """Keep what waits for a span of time, whose ends are wall times, as far away as it was."""
        _log.warning("%s", clock_stepped(step_ms))
        if self._upkeep is None:
            return
        self._offsets.shift(step_ms)
        self._lite.shift(step_ms)
        self.transactions.shift(step_ms)

    def _visible(self, pairs: Sequence[tuple[str, int]]) -> None:
        self.polls.wake(pairs)
        self.timers.arrived(pairs)
        self.transactions.arrived(pairs)
        self._lite.arrived(pairs)
        for topic, _ in pairs:
            if topic.startswith(RETRY_PREFIX):
                self.polls.wake_everywhere(topic.removeprefix(RETRY_PREFIX), EVERY_QUEUE)

    async def send(self, messages: Sequence[OutgoingMessage], *, typed: bool = True) -> list[SendReceipt]:
        """Store messages of one topic, all or none; they are safe at the store's ack level when this returns.

        `queue_id` None: one queue of the topic in turn for the whole call, for a message with a message group the
        group's own queue. `typed`: messages of another type than their topic's are refused. Raises the refusals of
        `admission`, TOPIC_NOT_FOUND, BROKER_DRAINED, TOO_MANY_REQUESTS, STORE_FAILED.
        """
        self.permission.check_writable(self.name)
        return await self._sender.send(messages, typed=typed)

    def plain_topic(self, name: str) -> TopicConfig | None:
        """The topic if ordinary messages for it may be given to `store_plain`; see `Sender.plain_topic`."""
        return None if self.permission.is_drained else self._sender.plain_topic(name)

    def store_plain(self, topic: TopicConfig, records: Sequence[PendingRecord], ended: Ended) -> None:
        """Store ordinary messages that their caller has checked; see `Sender.store_plain`."""
        self._sender.store_plain(topic, records, ended)

    @property
    def offset_id_prefix(self) -> str:
        """What all offset message ids of the broker begin with, before the log offset's 16 digits."""
        return self._sender.id_prefix

    async def end_transaction(self, topic: str, message_id: str, resolution: Resolution) -> None:
        """Commit or roll back a transaction; see `Transactions.end`."""
        await self.transactions.end(topic, message_id, resolution)

    async def pull(self, request: PullRequest, *, physical: bool = False, pace: Pace | None = None) -> PullResult:
        """Read a queue from an offset; see `Puller.pull`. The group is created if it is missing and may be.

        A group that was reset is told once where to go on, as OFFSET_ILLEGAL. Raises GROUP_DISABLED as well. Of a
        static topic the queue is a logic one, but for `physical`.
        """
        self.groups.ensure_enabled(request.group)
        is_logic = not physical and self.logic.is_static(request.topic)
        if is_logic:
            result = await self.logic.pull(request)
        else:
            result = self._moved(request) or await self._puller.pull(request, pace)
        if result.records:
            topic = self.topics.find(request.topic)
            self.statistics.pulled(request, result, holds_batches=topic is not None and topic.holds_batches)
            return result
        return result if is_logic else self._moved(request) or result

    def pull_now(self, request: PullRequest, *, physical: bool = False) -> PullResult | None:
        """As `pull`, without a task, where the answer needs no waiting; None where it does."""
        self.groups.ensure_enabled(request.group)
        if not physical and self.logic.is_static(request.topic):
            return None
        result = self._moved(request) or self._puller.pull_now(request)
        if result is not None and result.records:
            topic = self.topics.find(request.topic)
            self.statistics.pulled(request, result, holds_batches=topic is not None and topic.holds_batches)
        return result

    def _moved(self, request: PullRequest) -> PullResult | None:
        """Where to go on after a reset, which may come while the request waits as well."""
        moved = self._offsets.take_reset(request.group, request.topic, request.queue_id)
        if moved is None or moved == request.queue_offset:
            return None
        first = self.store.min_offset(request.topic, request.queue_id)
        last = self.store.max_offset(request.topic, request.queue_id)
        return PullResult(PullStatus.OFFSET_ILLEGAL, moved, first, last)

    async def pop(self, request: PopRequest) -> list[PoppedMessage]:
        """Take messages out of sight for a time; [] after `wait_ms` with nothing. See `Popper.pop`."""
        popped = await self.logic.pop(request)
        self.statistics.popped(request.group, request.topic, popped)
        return popped

    def ack(self, request: AckRequest) -> None:
        """Consume one delivery; a second time is no error. Raises INVALID_RECEIPT_HANDLE."""
        self._popper.ack(self.logic.physical(request))

    def is_discarded(self, request: AckRequest) -> bool:
        """Whether a reset discarded the delivery; see `Popper.is_discarded`."""
        return self._popper.is_discarded(self.logic.physical(request))

    def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        """Make a delivery visible later or (0) now; the new handle replaces the old. See `Popper.change_invisible`."""
        return self.logic.told(request, self._popper.change_invisible(self.logic.physical(request)))

    async def move_to_dead_letter(self, request: AckRequest) -> None:
        """Move one delivery to `%DLQ%<group>` and consume it. Raises INVALID_RECEIPT_HANDLE, STORE_FAILED."""
        await self._popper.move_to_dead_letter(self.logic.physical(request))

    def sync_lite_subscription(self, request: LiteSync) -> list[tuple[str, str]]:
        """Take over which lite topics a client reads; clients and lite topics that lost each other by it.

        See `LitePopper.sync`.
        """
        return self._lite.sync(request)

    def leave_lite_topics(self, client_id: str) -> None:
        """The client is gone: it reads no lite topic any more."""
        self._lite.subscriptions.remove_client(client_id)

    def group_positions(self, max_pairs: int) -> tuple[list[GroupPosition], int]:
        """Where the groups stand in their queues, for `max_pairs` of group and topic; how many were left out."""
        return self._offsets.positions(max_pairs)

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset up to which the group has consumed the queue, None if it never did anything there."""
        return self._offsets.committed(group, topic, queue_id)

    def commit_offset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the group's offset; negative ones are passed over. Where the group pops, it only moves forward.
        After a reset commits are passed over until the group's next pull.

        Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, GROUP_NOT_FOUND, and ILLEGAL_OFFSET behind the queue's end: the group
        would never get the messages to come.
        """
        self.queues.check_offset(topic, queue_id, queue_offset)
        self.groups.ensure(group)
        self._offsets.commit(group, topic, queue_id, queue_offset)

    def first_offset(self, group: GroupConfig, topic: str, queue_id: int) -> int:
        """Where the group would begin in a queue that it has no position in.

        Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND.
        """
        self.queues.check(topic, queue_id)
        return self._reader.first_offset(group, topic, queue_id)

    async def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_results: int
    ) -> list[bytes | memoryview]:
        """Records of the topic with the key or unique key, stored in that time, newest first; 64 at most.

        Raises TOPIC_NOT_FOUND.
        """
        self.topics.get(topic)
        found = await asyncio.to_thread(self.store.find_by_key, topic, key, begin_ms, end_ms, max_results)
        return self.logic.placed(topic, list(found))

    async def store_traces(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store messages of the trace topic, which no client may write. Raises what storing raises."""
        self.topics.ensure_own(TopicConfig(TRACE_TOPIC, read_queues=1, write_queues=1, permission=Permission.READ))
        await self._appender.append_many([PendingRecord(message, 0) for message in messages])

    async def recall(self, topic: str, message_id: str) -> None:
        """Take a delayed message back; see `Timers.recall`."""
        await self.timers.recall(topic, message_id)

    async def retain(self) -> None:
        """Let old messages go now, as the broker does by itself every 10 s. Raises STORE_FAILED."""
        if self._upkeep is not None:
            await self._upkeep.retain()

    def _end_of(self, topic: str, queue_id: int) -> int | None:
        place = stored_topic(topic)
        return None if self.topics.find(bind_topic_of(place)) is None else self.store.max_offset(place, queue_id)

    def _forget_topic(self, name: str) -> None:
        # On the disk before the topic goes: a new topic of that name must not inherit offsets after a crash.
        self._offsets.forget(topic=name)
        self._offsets.save()
        self.static_topics.forget(name)
        self._lite_expiry.drop_topic(name)
        self._popper.forget(topic=name)
        self._sender.forget(name)
        self.statistics.forget_topic(name)
        self.request_modes.forget(topic=name)
        self.dead_letters.forget(name)
        self.store.delete_topic(name)
        self.polls.wake_topic(name)

    def _forget_group(self, name: str) -> None:
        if self.topics.find(RETRY_PREFIX + name) is not None:
            self.topics.delete(RETRY_PREFIX + name)
        self._offsets.forget(group=name)
        self._offsets.save()
        self._popper.forget(group=name)
        self.logic.pops.forget(group=name)
        self.statistics.forget_group(name)
        self.request_modes.forget(group=name)


def _store_host(advertised: Address, options: StoreOptions) -> Address:
    """Records carry an IP address; where the broker is advertised by a name they carry the store's own setting."""
    try:
        ip_address(advertised.host)
    except ValueError:
        return options.store_host
    return advertised
