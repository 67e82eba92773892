"""Send: admit messages, choose their queue, hand them to the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from millstream.broker.delivery.admission import check_again, check_message, check_messages, is_writable, type_of
from millstream.broker.delivery.delay import due_ms_of, waiting
from millstream.broker.delivery.half_messages import HALF_TOPIC, half
from millstream.broker.delivery.timers import Timers
from millstream.broker.delivery.transactions import Transactions
from millstream.broker.light_queues.light_queues import LightQueues
from millstream.broker.pop.lite_topics import LiteExpiry
from millstream.broker.queues.topics import StaticTopics, TopicRegistry
from millstream.broker.statistics import Statistics
from millstream.model import properties
from millstream.model.clock import Clock
from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.filter import java_hash_code
from millstream.model.lite import lite_queue
from millstream.model.logic_queue import TopicMapping
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.model.state_topics import ROUTES_TOPIC, is_state_topic, state_topic
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import offset_message_id
from millstream.protocol.record_encoder import PlainRecord
from millstream.store.appender import Appender, Ended
from millstream.store.message_store import PendingRecord
from millstream.store.write_batch import AnyPlace

__all__ = ["Sender"]

_DETOURS = frozenset((MessageType.DELAY, MessageType.TRANSACTION))
_DELAYED = frozenset((MessageType.DELAY, MessageType.MIXED))
_TAKES_PLAIN = frozenset((MessageType.NORMAL, MessageType.MIXED))
_TRANSACTIONAL = frozenset((MessageType.TRANSACTION, MessageType.MIXED))
# At hand, because in Python 3.11 the way from an enum's class to a member runs in Python.
_NORMAL, _LITE, _FIFO, _PRIORITY = MessageType.NORMAL, MessageType.LITE, MessageType.FIFO, MessageType.PRIORITY

_hash_code = lru_cache(maxsize=4096)(java_hash_code)
"""Message groups repeat."""


@dataclass(slots=True)
class Sender:
    """Answers sends."""

    topics: TopicRegistry
    appender: Appender
    timers: Timers
    transactions: Transactions
    lite_expiry: LiteExpiry
    clock: Clock
    store_host: Address
    broker_name: str
    statistics: Statistics = field(default_factory=Statistics)
    static_topics: StaticTopics | None = None
    light_queues: LightQueues | None = None
    _turns: dict[str, int] = field(default_factory=dict)
    id_prefix: str = field(init=False)
    """What all offset message ids of the broker begin with, before the log offset's 16 digits."""

    def __post_init__(self) -> None:
        self.id_prefix = offset_message_id(self.store_host, 0)[:-16]

    async def send(self, messages: Sequence[OutgoingMessage], *, typed: bool = True) -> list[SendReceipt]:
        """Store messages of one topic, all or none, in their order where they share a queue; see `Delivery.send`."""
        if not messages:
            raise MessageRefused("MESSAGE_MALFORMED", "A send has no message.")
        topic = self.topics.get(messages[0].topic)
        mapping = None if self.static_topics is None else self.static_topics.find(topic.name)
        if mapping is not None:
            return await self._send_static(messages, topic, mapping, typed=typed)
        return await self._send(messages, topic, chosen=False, typed=typed)

    def plain_topic(self, name: str) -> TopicConfig | None:
        """The topic if an ordinary message for one of its queues needs nothing but a place in the log; None where it
        cannot be written, or is of a kind that looks at each message."""
        topic = self.topics.find(name)
        if topic is None or topic.message_type not in _TAKES_PLAIN or topic.holds_batches or topic.is_compacted:
            return None
        if self.static_topics is not None and self.static_topics.find(name) is not None:
            return None
        return topic if is_writable(topic) else None

    def take_turns(self, topic: TopicConfig, count: int) -> int:
        """The first turn of the next `count` calls to a topic whose messages name no queue: the queues take turns."""
        return self._next_turn(topic.name, count)

    def store_plain(self, topic: TopicConfig, records: Sequence[PlainRecord], ended: Ended) -> None:
        """Store ordinary messages of a `plain_topic`, which their caller has checked, together or not at all; `ended`
        is told. Refusals of the appender are raised at once."""
        self.appender.append_then(records, partial(self._plain_ended, topic, records, ended))

    async def send_plain(self, topic: TopicConfig, records: Sequence[PlainRecord]) -> None:
        """The same for who waits. Raises what refused them."""
        await self.appender.append_now(records, is_of_one_topic=True)
        self.statistics.stored_plain(topic.name, records)

    def _plain_ended(
        self,
        topic: TopicConfig,
        records: Sequence[PlainRecord],
        ended: Ended,
        places: Sequence[AnyPlace],
        error: BaseException | None,
    ) -> None:
        if error is None:
            self.statistics.stored_plain(topic.name, records)
        ended(places, error)

    async def _send_static(
        self, messages: Sequence[OutgoingMessage], topic: TopicConfig, mapping: TopicMapping, *, typed: bool
    ) -> list[SendReceipt]:
        """Queues and offsets are logic ones for the sender. The queue that the sender asks for goes first.

        Raises QUEUE_NOT_FOUND, NOT_LEADER_FOR_QUEUE.
        """
        assert self.static_topics is not None
        led = [*mapping.led_queues]
        shared_queue = 0
        if any(_has_no_queue(message) for message in messages):
            turn = self._next_turn(topic.name)
            shared_queue = led[turn % len(led)] if led else 0
        queues = [
            self.static_topics.led_queue(topic.name, _logic_queue_of(message, shared_queue, mapping))
            for message in messages
        ]
        pairs = zip(messages, queues, strict=True)
        placed = [replace(message, queue_id=queue.leader.queue_id) for message, queue in pairs]
        receipts = await self._send(placed, topic, chosen=True, typed=typed)
        return [
            replace(receipt, queue_id=queue.number, queue_offset=queue.leader.logic(receipt.queue_offset))
            for receipt, queue in zip(receipts, queues, strict=True)
        ]

    async def _send(
        self, messages: Sequence[OutgoingMessage], topic: TopicConfig, *, chosen: bool, typed: bool
    ) -> list[SendReceipt]:
        """`chosen`: each message names the queue that it goes to, whatever its message group."""
        check_messages(messages, topic, typed=typed)
        kind = topic.message_type
        if kind is _LITE:
            lite_topics = {message.properties[properties.LITE_TOPIC] for message in messages}
            await self.lite_expiry.await_deletions({lite_queue(topic.name, lite_topic) for lite_topic in lite_topics})
        shared_queue: int | None = None
        pending, due = [], []
        for message in messages:
            queue_id = message.queue_id
            if queue_id is None or not (chosen or kind is _NORMAL):
                queue_id = _queue_of(message, topic)
            if queue_id is None:
                # Only who needs one takes a turn: how many others were stored together must not show in the queues.
                if shared_queue is None:
                    shared_queue = self._next_turn(topic.name) % topic.write_queues
                queue_id = shared_queue
            record, due_ms = self._record(message, queue_id, topic, typed=typed)
            pending.append(record)
            due.append(due_ms)
        appended = await self.appender.append_now(pending)
        if kind in _TRANSACTIONAL or not typed:
            for record, place in zip(pending, appended, strict=True):
                if record.message.topic == HALF_TOPIC:
                    self.transactions.note(record.message, place)
        self.statistics.note_stored(topic, pending, appended, typed=typed)
        # By position: names cost as much as the values, and there is one for every message.
        return [
            SendReceipt(
                record.message.properties.get(properties.UNIQUE_KEY, ""),
                f"{self.id_prefix}{place.log_offset:016X}",
                record.queue_id,
                place.queue_offset,
                place.log_offset,
                place.store_timestamp_ms,
                self.broker_name,
                due_ms,
            )
            for record, place, due_ms in zip(pending, appended, due, strict=True)
        ]

    async def store_state(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """Store records of one state topic, all or none, in their order; the topic is made where it is missing.

        Raises ILLEGAL_TOPIC for any other topic, the refusals of `admission`, and what storing raises.
        """
        name = messages[0].topic if messages else ""
        if not is_state_topic(name):
            raise NameRefused("ILLEGAL_TOPIC", f"{name[:200]!r} is no topic in which proxies keep their state.")
        config = state_topic(name)
        for message in messages:
            check_message(message, config)
        if name == ROUTES_TOPIC and self.light_queues is not None:
            await self.light_queues.admit(messages)
        self.topics.ensure_own(config)
        places = await self.appender.append_many([PendingRecord(message, 0) for message in messages])
        return [
            SendReceipt(
                message_id=message.properties.get(properties.UNIQUE_KEY, ""),
                offset_message_id=f"{self.id_prefix}{place.log_offset:016X}",
                queue_id=0,
                queue_offset=place.queue_offset,
                log_offset=place.log_offset,
                store_timestamp_ms=place.store_timestamp_ms,
                broker_name=self.broker_name,
            )
            for message, place in zip(messages, places, strict=True)
        ]

    async def send_again(self, message: OutgoingMessage) -> None:
        """Store a message that was admitted once, at its topic's ack level.

        Of topics whose messages are staged it takes ordinary ones, too: theirs was taken the first time.
        """
        topic = self.topics.get(message.topic)
        if topic.message_type not in _DETOURS:
            await self.send([message], typed=False)
            return
        check_again(message, topic)
        queue_id = _queue_of(message, topic)
        if queue_id is None:
            queue_id = self._next_turn(topic.name) % topic.write_queues
        await self.appender.append(PendingRecord(message, queue_id, 1 if topic.holds_batches else None))

    def _record(
        self, message: OutgoingMessage, queue_id: int, topic: TopicConfig, *, typed: bool
    ) -> tuple[PendingRecord, int | None]:
        """What is stored of a message, and when it is due if it has to wait. One that need not be of its topic's type
        goes the way of its own."""
        if properties.TIMER_OF in message.properties:
            # The broker's own mark on a message that is sent on: a start would take it for a delivery.
            kept = {name: value for name, value in message.properties.items() if name != properties.TIMER_OF}
            message = replace(message, properties=kept)
        kind = topic.message_type
        if (kind in _TRANSACTIONAL or not typed) and type_of(message) is MessageType.TRANSACTION:
            self.transactions.check_room()
            return PendingRecord(half(message, queue_id), 0), None
        if kind is _LITE:
            lite_topics, lite_topic = self.lite_expiry.lite_topics, message.properties[properties.LITE_TOPIC]
            name = lite_topics.write(topic.name, lite_topic, self.clock.now_ms())
            return PendingRecord(replace(message, topic=name), 0), None
        if kind in _DELAYED or not typed:
            now_ms = self.clock.now_ms()
            due_ms = due_ms_of(message.properties, now_ms)
            if due_ms is not None and due_ms > now_ms:
                self.timers.check_room()
                return PendingRecord(waiting(message, queue_id, due_ms), 0), due_ms
        return PendingRecord(message, queue_id, message.message_count if topic.holds_batches else None), None

    def _next_turn(self, topic: str, count: int = 1) -> int:
        """Which call this is of those to the topic whose messages name no queue, from 0 on; `count` of them are made at
        once."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + count
        return turn

    def forget(self, topic: str) -> None:
        """Drop what is held here of a deleted topic."""
        self._turns.pop(topic, None)


@lru_cache(maxsize=8)
def _id_prefix(store_host: Address) -> str:
    """What all offset message ids of a broker begin with, before the log offset's 16 digits."""
    return offset_message_id(store_host, 0)[:-16]


def _has_no_queue(message: OutgoingMessage) -> bool:
    return message.queue_id is None and properties.MESSAGE_GROUP not in message.properties


def _logic_queue_of(message: OutgoingMessage, shared_queue: int, mapping: TopicMapping) -> int:
    """The logic queue that the sender asked for, else the one of its message group, else the call's.

    Unlike in other topics the sender goes first: this broker could not store for another broker's queue.
    """
    if message.queue_id is not None:
        return message.queue_id
    group = message.properties.get(properties.MESSAGE_GROUP)
    return shared_queue if group is None else _hash_code(group) % mapping.total_queues


def _queue_of(message: OutgoingMessage, topic: TopicConfig) -> int | None:
    """The queue that the sender asked for, else the one of its message group; None: the call's.

    In a FIFO topic the message group goes first: a group has one queue, whatever rule its senders' libraries have.
    In a PRIORITY topic the priority is the queue's number; those beyond the last queue share it.
    """
    kind = topic.message_type
    if kind is _PRIORITY:
        return min(int(message.properties[properties.PRIORITY]), topic.write_queues - 1)
    group = message.properties.get(properties.MESSAGE_GROUP)
    is_bound = group is not None and kind is _FIFO
    if message.queue_id is not None and not is_bound:
        return message.queue_id
    return None if group is None else _hash_code(group) % topic.write_queues
