"""The way of messages through a broker: send, deliver, acknowledge, redeliver, dead-letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from millstream.broker.delivery.redrive import Redriver
from millstream.broker.delivery.retries import Retries
from millstream.broker.delivery.sender import Sender
from millstream.broker.delivery.timers import Timers
from millstream.broker.delivery.transactions import Transactions
from millstream.broker.permission import BrokerPermission
from millstream.broker.pop.lite_popper import LitePopper
from millstream.broker.pop.popper import Popper
from millstream.broker.pop.preview import Preview
from millstream.broker.pop.run_popper import DeliveredRun, RunPopper
from millstream.broker.queues.topics import RETRY_PREFIX, TopicRegistry
from millstream.broker.static_topics.logic_queues import LogicQueues
from millstream.broker.statistics import Statistics
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import MillstreamError
from millstream.model.group import FirstPosition
from millstream.model.handles import ReceiptHandle
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, is_light_queue
from millstream.model.lite import LiteSync
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    DeadLetterPage,
    DeadLetterQuery,
    PoppedMessage,
    PopRequest,
    RedriveResult,
    Resolution,
    SendBackRequest,
    SendReceipt,
)
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.batches import BATCH_FLAGS
from millstream.protocol.record import system_flag_of
from millstream.protocol.record_encoder import PlainRecord
from millstream.protocol.trace import TRACE_TOPIC
from millstream.store.appender import Appender, Ended
from millstream.store.message_store import PendingRecord

__all__ = ["DeliveryService"]


@dataclass(frozen=True, slots=True)
class DeliveryService:
    """Takes messages in and delivers them; every call is from the event loop's thread.

    Of a static topic the queues and offsets in requests and receipt handles are those that clients know.
    """

    broker_name: str
    topics: TopicRegistry
    permission: BrokerPermission
    appender: Appender
    sender: Sender
    popper: Popper
    run_popper: RunPopper
    lite: LitePopper
    logic: LogicQueues
    timers: Timers
    transactions: Transactions
    retries: Retries
    redriver: Redriver
    statistics: Statistics

    # Sending

    async def send(self, messages: Sequence[OutgoingMessage], *, typed: bool = True) -> list[SendReceipt]:
        """Store messages of one topic, all or none; they are safe at the store's ack level when this returns.

        `queue_id` None: one queue of the topic in turn for the whole call, for a message with a message group the
        group's own queue. `typed`: messages of another type than their topic's are refused. Raises the refusals of
        `admission`, TOPIC_NOT_FOUND, BROKER_DRAINED, TOO_MANY_REQUESTS, STORE_FAILED.
        """
        self.permission.check_writable(self.broker_name)
        return await self.sender.send(messages, typed=typed)

    def plain_topic(self, name: str) -> TopicConfig | None:
        """The topic if ordinary messages for it may be given to `store_plain`; see `Sender.plain_topic`."""
        return None if self.permission.is_drained else self.sender.plain_topic(name)

    def take_turns(self, topic: TopicConfig, count: int) -> int:
        """The first of so many turns at a topic's queues; see `Sender.take_turns`."""
        return self.sender.take_turns(topic, count)

    def store_plain(self, topic: TopicConfig, records: Sequence[PlainRecord], ended: Ended) -> None:
        """Store ordinary messages that their caller has checked; see `Sender.store_plain`."""
        self.sender.store_plain(topic, records, ended)

    async def send_plain(self, topic: TopicConfig, records: Sequence[PlainRecord]) -> None:
        """The same for who waits; see `Sender.send_plain`."""
        await self.sender.send_plain(topic, records)

    @property
    def offset_id_prefix(self) -> str:
        """What all offset message ids of the broker begin with, before the log offset's 16 digits."""
        return self.sender.id_prefix

    async def store_traces(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store messages of the trace topic, which no client may write. Raises what storing raises."""
        self.topics.ensure_own(TopicConfig(TRACE_TOPIC, read_queues=1, write_queues=1, permission=Permission.READ))
        await self.appender.append_many([PendingRecord(message, 0) for message in messages])

    async def store_state(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """Store what a proxy keeps in one of its own topics, also while the broker is drained; see
        `Sender.store_state`."""
        return await self.sender.store_state(messages)

    async def recall(self, topic: str, message_id: str) -> None:
        """Take a delayed message back; see `Timers.recall`."""
        await self.timers.recall(topic, message_id)

    # Transactions

    async def end_transaction(self, topic: str, message_id: str, resolution: Resolution) -> None:
        """Commit or roll back a transaction; see `Transactions.end`."""
        await self.transactions.end(topic, message_id, resolution)

    def half_at(self, queue_offset: int, log_offset: int) -> StoredMessage | None:
        """The half message that lies there, in its own topic; None where there is none."""
        return self.transactions.half_at(queue_offset, log_offset)

    def watch_transactions(self, ask: Callable[[RecoverOrphanedTransaction], bool]) -> Callable[[], None]:
        """Have `ask` called for transactions whose end is unknown; True once a producer was asked.

        The result ends that.
        """
        self.transactions.on_check.append(ask)
        return lambda: self.transactions.on_check.remove(ask)

    # Popping

    async def pop(self, request: PopRequest) -> list[PoppedMessage]:
        """Take messages out of sight for a time; [] after `wait_ms` with nothing. See `Popper.pop`."""
        if request.releases and is_light_queue(request.topic):
            self.popper.release_deliveries(request.group, request.topic, LIGHT_QUEUE_NUMBER)
        popped = await self.logic.pop(request)
        self.statistics.note_popped(request.group, request.topic, popped)
        return popped

    def find_runs(self, request: PopRequest) -> list[DeliveredRun]:
        """The records that a pop would take now, if they are ordinary ones; nothing is taken. See `RunPopper.find`."""
        return [] if self.logic.is_static(request.topic) else self.run_popper.find(request)

    def take_runs(self, request: PopRequest, runs: Sequence[DeliveredRun], body_bytes: int) -> None:
        """Deliver what `find_runs` gave in the same turn; `body_bytes` is the size of their bodies."""
        self.run_popper.take(request, runs)
        count = sum(len(run.places) for run in runs)
        self.statistics.note_delivered(request.group, request.topic, count, body_bytes)

    async def pop_segment(self, request: PopRequest) -> tuple[list[PoppedMessage], bool]:
        """What the broker that leads a logic queue asks for; see `LogicPops.pop_segment`."""
        return await self.logic.pops.pop_segment(request)

    def stored_records(self, topic: str, popped: Sequence[PoppedMessage]) -> list[memoryview | None]:
        """The records as stored, which the pop has just verified; None where clients are to get another one.

        That is so for a record that holds a batch, and in static topics and light queues: clients know other numbers of
        queues and other offsets.
        """
        if self.logic.is_static(topic) or is_light_queue(topic):
            return [None] * len(popped)
        return [self._stored_record(message.handle.log_offset) for message in popped]

    def _stored_record(self, log_offset: int) -> memoryview | None:
        record = self.popper.reader.store.record_at(log_offset, verify=False)
        return None if record is None or system_flag_of(record) & BATCH_FLAGS else record

    def ack(self, request: AckRequest) -> None:
        """Consume one delivery; a second time is no error. Raises INVALID_RECEIPT_HANDLE."""
        self.popper.ack(self.logic.physical(request))

    def ack_all(
        self, group: str, topic: str, deliveries: list[tuple[int, int, int]]
    ) -> dict[int, MillstreamError] | None:
        """Consume deliveries that are in time, of a topic that is not static (None: nothing was done); see
        `Popper.ack_all`."""
        return None if self.logic.is_static(topic) else self.popper.ack_all(group, topic, deliveries)

    def is_discarded(self, request: AckRequest) -> bool:
        """Whether a reset discarded the delivery; see `Popper.is_discarded`."""
        return self.popper.is_discarded(self.logic.physical(request))

    def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        """Make a delivery visible later or (0) now; the new handle replaces the old. See `Popper.change_invisible`."""
        return self.logic.client_handle_of(request, self.popper.change_invisible(self.logic.physical(request)))

    def release_deliveries(self, group: str, topic: str) -> None:
        """Make all deliveries of a light queue visible; see `Popper.release_deliveries`. Raises TOPIC_NOT_FOUND."""
        self.topics.get(topic)
        self.popper.release_deliveries(group, topic, LIGHT_QUEUE_NUMBER)

    async def move_to_dead_letter(self, request: AckRequest) -> None:
        """Move one delivery to `%DLQ%<group>` and consume it. Raises INVALID_RECEIPT_HANDLE, STORE_FAILED."""
        await self.popper.move_to_dead_letter(self.logic.physical(request))

    def begin_at_last(self, group: str, topic: str) -> None:
        """Put a group that has no offset yet before the last message of each queue.

        As RocketMQ: not in a queue that still has its first message, and not in retry topics; nor in static ones.
        """
        if topic.startswith(RETRY_PREFIX) or self.logic.is_static(topic):
            return
        store, offsets = self.popper.reader.store, self.popper.offsets
        for queue_id in range(self.topics.get(topic).read_queues):
            if offsets.committed_offset(group, topic, queue_id) is not None:
                continue
            first = store.min_offset(topic, queue_id)
            if first and self.popper.groups.ensure(group).first_position is FirstPosition.FIRST:
                last = max(store.max_offset(topic, queue_id) - 1, first)
                offsets.commit(group, topic, queue_id, last)

    # What a pop would find

    async def peek(
        self, group: str, topic: str, queue_id: int | None, max_messages: int, *, physical: bool = False
    ) -> tuple[list[StoredMessage], int]:
        """What a pop would deliver next, and how many messages were not delivered to the group yet.

        Of a static topic the number is 0; `physical` names its queue at this broker. Raises as `Preview.messages`.
        """
        preview = Preview(self.popper)
        if not self.logic.is_static(topic):
            found = preview.messages(group, topic, queue_id, max_messages)
            return found, preview.count(group, topic, queue_id)
        if physical and queue_id is not None:
            return self.logic.pops.peek_own(group, topic, [queue_id], max_messages), 0
        return await self.logic.pops.peek(group, topic, queue_id, max_messages), 0

    def count_undelivered(self, group: str, topic: str, queue_id: int | None) -> int:
        """How many messages were not delivered to the group yet; 0 of a static topic. Raises as `Preview.messages`."""
        return 0 if self.logic.is_static(topic) else Preview(self.popper).count(group, topic, queue_id)

    async def wait_for_message(self, request: PopRequest) -> bool:
        """Whether there is something to pop, at once or within `wait_ms`; raises as `Preview.wait`.

        Of a static topic all queues of this broker count, and not what its peers hold of them.
        """
        if self.logic.is_static(request.topic):
            request = replace(request, queue_id=None)
        return await Preview(self.popper).wait(request)

    def count_waiting_pops(self, group: str, topic: str, queue_id: int | None) -> int:
        """How many pops of the group wait for a queue, or (None) for all queues."""
        return self.popper.polls.waiting_pops(group, topic, queue_id)

    # Lite topics

    def sync_lite_subscription(self, request: LiteSync) -> list[tuple[str, str]]:
        """Take over which lite topics a client reads; clients and lite topics that lost each other by it.

        See `LitePopper.sync`.
        """
        return self.lite.sync(request)

    def leave_lite_topics(self, client_id: str) -> None:
        """The client is gone: it reads no lite topic any more."""
        self.lite.subscriptions.remove_client(client_id)

    # What comes back

    async def send_back(self, request: SendBackRequest) -> None:
        """Deliver a message of the log to a group again; see `Retries.send_back`."""
        await self.retries.send_back(request)

    async def send_retry(self, message: OutgoingMessage, max_reconsume_times: int | None) -> SendReceipt:
        """Store what a consumer sends to its group's retry topic by itself; see `Retries.send`."""
        return await self.retries.send(message, max_reconsume_times)

    def dead_letters(self, query: DeadLetterQuery) -> DeadLetterPage:
        """A page of a group's dead letters; see `Redriver.page`."""
        return self.redriver.page(query)

    async def redrive(self, query: DeadLetterQuery, target: str | None = None) -> RedriveResult:
        """Send dead letters to their topics again; see `Redriver.redrive`."""
        return await self.redriver.redrive(query, target)
