"""Messages that consumers send back: copied to the retry topic after a delay, or to the dead-letter topic.

Messages that a consumer of the remoting protocol gave back, as they wait in the group's retry topic.

The broker copies such a message to `%RETRY%<group>` after a delay; its count of deliveries goes on, and the copy says
which topic it is of. Who pulls the retry topic gets the copies under its name and tells them apart by that property.
Who pops a topic gets those of that topic as if they lay in it. Source of names and delays: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.broker.delivery.admission import check_content
from millstream.broker.delivery.delay import LEVELS_S, due_ms_of, waiting, without_delay
from millstream.broker.delivery.half_messages import HALF_OF
from millstream.broker.delivery.timers import Timers
from millstream.broker.pop.dead_letters import ORIGIN_MESSAGE_ID, DeadLetterQueues
from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.broker.queues.queue_locks import QueueLocks
from millstream.broker.queues.retry_lines import origin_of, restore_topic
from millstream.broker.queues.topics import RETRY_PREFIX, TopicRegistry
from millstream.broker.statistics import Statistics
from millstream.model import properties as names
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused
from millstream.model.group import DEFAULT_BACKOFF_S, GroupConfig
from millstream.model.message import Address, OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.operations import DeadLetterReason, SendBackRequest, SendReceipt
from millstream.model.topic import TopicConfig, is_system_topic
from millstream.protocol.batches import messages_of
from millstream.protocol.record import offset_message_id
from millstream.store.appender import Appender
from millstream.store.message_store import AppendedRecord, MessageStore, PendingRecord

__all__ = ["Retries", "clean_copy_of", "is_used_up", "returned_copy_of", "wait_ms"]

_FIRST_LEVEL = 3
"""The delay level after the first failure; each further one takes the next."""

_KEPT_FLAGS = SystemFlag.COMPRESSED | SystemFlag.MULTI_TAGS | SystemFlag.COMPRESSION_ZLIB
_MARKS = frozenset((HALF_OF, names.TRANSACTION))


def returned_copy_of(message: StoredMessage, group: str) -> OutgoingMessage:
    """The copy of a message that its consumer gave back: one delivery more on its count."""
    first_id = offset_message_id(message.store_host, message.log_offset)
    held = {
        names.RETRY_TOPIC: message.topic,
        names.ORIGIN_MESSAGE_ID: first_id,
        **_plain(message.properties),
    }
    return OutgoingMessage(
        topic=RETRY_PREFIX + group,
        body=message.body,
        properties=held,
        queue_id=0,
        system_flag=message.system_flag & _KEPT_FLAGS,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times + 1,
    )


def clean_copy_of(message: OutgoingMessage) -> OutgoingMessage:
    """A copy that a consumer made itself, as an ordinary message that does not wait."""
    flags = message.system_flag & _KEPT_FLAGS
    return replace(message, properties=_plain(message.properties), queue_id=0, system_flag=flags)


def _plain(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in without_delay(properties).items() if name not in _MARKS}


def is_used_up(group: GroupConfig, reconsume_times: int, max_reconsume_times: int | None) -> bool:
    """Whether a message that was delivered again so many times is not delivered any more.

    `max_reconsume_times` is the consumer's own limit; None or a negative one leaves it to the group.
    """
    limit = group.max_attempts - 1 if max_reconsume_times is None or max_reconsume_times < 0 else max_reconsume_times
    return reconsume_times >= limit


def wait_ms(group: GroupConfig, reconsume_times: int, level: int) -> int:
    """How long a message waits that was delivered again so many times before; a `level` of 0 leaves it to the group.

    A group whose backoff is as it was made has RocketMQ's for consumers that pull: 10 s, 30 s, 1 min and so on.
    """
    if level <= 0 and (group.exponential is not None or group.backoff_s != DEFAULT_BACKOFF_S):
        return group.backoff_ms(reconsume_times + 1)
    chosen = level if level > 0 else _FIRST_LEVEL + reconsume_times
    return LEVELS_S[min(chosen, len(LEVELS_S)) - 1] * 1000


_GIVEN_UP = -1
"""The delay level of a message that its consumer wants to see no more."""


@dataclass(frozen=True, slots=True)
class Retries:
    """What consumers of all groups give back; every call is from the event loop's thread."""

    topics: TopicRegistry
    groups: GroupRegistry
    store: MessageStore
    appender: Appender
    timers: Timers
    dead_letters: DeadLetterQueues
    locks: QueueLocks
    clock: Clock
    store_host: Address
    broker_name: str
    statistics: Statistics

    async def send_back(self, request: SendBackRequest) -> None:
        """Deliver a message of the log to the group again, or bury it after its last attempt; safe when this returns.

        Raises GROUP_NOT_FOUND, RETURNED_MESSAGE_UNKNOWN, TOO_MANY_REQUESTS and what storing raises.
        """
        message = self._find(request)
        group = self.groups.ensure(request.group)
        if request.delay_level <= _GIVEN_UP or is_used_up(group, message.reconsume_times, request.max_reconsume_times):
            is_given_up = request.delay_level <= _GIVEN_UP
            reason = DeadLetterReason.CONSUMER if is_given_up else DeadLetterReason.ATTEMPTS
            await self._bury(request.group, message, message.reconsume_times + 1, reason)
            return
        copy = returned_copy_of(message, request.group)
        delay_ms = wait_ms(group, message.reconsume_times, request.delay_level)
        await self._store(copy, self.clock.now_ms() + delay_ms)

    async def send(self, message: OutgoingMessage, max_reconsume_times: int | None) -> SendReceipt:
        """Store a copy that a consumer made itself for its group's retry topic, which counts its deliveries already.

        That is what consumers do whose `send_back` failed, and ordered ones after their last attempt: theirs is buried.
        Raises GROUP_NOT_FOUND, TOO_MANY_REQUESTS, the refusals of bodies and properties, and what storing raises.
        """
        name = message.topic.removeprefix(RETRY_PREFIX)
        group = self.groups.ensure(name)
        check_content(message)
        now_ms = self.clock.now_ms()
        due_ms = due_ms_of(message.properties, now_ms) or now_ms
        copy = clean_copy_of(message)
        is_dead = is_used_up(group, message.reconsume_times - 1, max_reconsume_times)
        if is_dead or self.locks.is_ordered(name, self.clock.monotonic_s()):
            place = await self._bury(name, _as_stored(copy), copy.reconsume_times, DeadLetterReason.ATTEMPTS)
        else:
            place = await self._store(copy, due_ms)
        return SendReceipt(
            message_id=copy.properties.get(names.UNIQUE_KEY, ""),
            offset_message_id=offset_message_id(self.store_host, place.log_offset),
            queue_id=0,
            queue_offset=place.queue_offset,
            log_offset=place.log_offset,
            store_timestamp_ms=place.store_timestamp_ms,
            broker_name=self.broker_name,
        )

    def ensure_topic(self, group: str) -> TopicConfig:
        """The group's retry topic, created if it is missing."""
        name = RETRY_PREFIX + group
        if self.topics.find(name) is None:
            self.topics.create(TopicConfig(name, read_queues=1, write_queues=1))
        return self.topics.get(name)

    async def _store(self, copy: OutgoingMessage, due_ms: int) -> AppendedRecord:
        topic = self.ensure_topic(copy.topic.removeprefix(RETRY_PREFIX))
        record = PendingRecord(copy, 0)
        if due_ms > self.clock.now_ms():
            self.timers.check_room()
            record = PendingRecord(waiting(copy, 0, due_ms), 0)
        place = await self.appender.append(record)
        self.statistics.note_stored(topic, [record], [place])
        if record.message is not copy:
            self.statistics.timers[topic.name].add(record, place)
        return place

    async def _bury(
        self, group: str, message: StoredMessage, attempts: int, reason: DeadLetterReason
    ) -> AppendedRecord:
        first_id = message.properties.get(names.ORIGIN_MESSAGE_ID)
        if first_id and not message.message_id:
            message = replace(message, properties={ORIGIN_MESSAGE_ID: first_id, **message.properties})
        return await self.dead_letters.bury(group, restore_topic(message), attempts, reason)

    def _find(self, request: SendBackRequest) -> StoredMessage:
        """The message of the log that is meant; of a batch the one with the id that the consumer says."""
        record = self.store.record_at(request.log_offset)
        found = [] if record is None else messages_of(record, 0)
        if len(found) > 1:
            found = [message for message in found if message.message_id == request.message_id]
        if len(found) != 1 or is_system_topic(found[0].topic) or not request.may_be_of(found[0].topic):
            raise ConsumeRefused(
                "RETURNED_MESSAGE_UNKNOWN",
                f"The group {request.group!r} gives back a message at log offset {request.log_offset}, where none of "
                "its messages is.",
            )
        return found[0]


def _as_stored(copy: OutgoingMessage) -> StoredMessage:
    """A message that was never stored, in the form in which dead letters are made of stored ones."""
    return StoredMessage(
        topic=origin_of(copy),
        queue_id=0,
        queue_offset=0,
        log_offset=0,
        body=copy.body,
        properties=copy.properties,
        born_timestamp_ms=copy.born_timestamp_ms,
        born_host=copy.born_host,
        store_timestamp_ms=copy.born_timestamp_ms,
        store_host=copy.born_host,
        system_flag=copy.system_flag,
        flag=copy.flag,
    )
