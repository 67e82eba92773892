"""Messages that a group could not consume, moved to the group's dead-letter topic."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.broker.queues.ledger import Delivery, Ledger
from millstream.broker.queues.topics import DEAD_LETTER_PREFIX, TopicRegistry
from millstream.broker.statistics import Statistics
from millstream.model import properties
from millstream.model.errors import MillstreamError
from millstream.model.lite import bind_topic_of
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.operations import DeadLetter, DeadLetterReason
from millstream.model.topic import TopicConfig
from millstream.protocol.record import offset_message_id
from millstream.store.appender import Appender
from millstream.store.message_store import AppendedRecord, PendingRecord

__all__ = [
    "ORIGIN_MESSAGE_ID",
    "ORIGIN_TOPIC",
    "REASON",
    "REDRIVE_OF",
    "DeadLetterQueues",
    "ExhaustedDelivery",
    "dead_letter_of",
]

_log = logging.getLogger(__name__)

ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
REASON = "__DLQ_REASON"
"""Our own property, as the next one: why the message is a dead letter."""
REDRIVE_OF = "__REDRIVE_OF"
"""In a message that was sent again: the group and the log offset of the dead letter."""


@dataclass(slots=True)
class ExhaustedDelivery:
    """A delivery whose message has no attempt left, and the ledger that it is to leave."""

    ledger: Ledger
    delivery: Delivery
    message: StoredMessage
    attempts: int


@dataclass(frozen=True, slots=True)
class DeadLetterQueues:
    """Appends to `%DLQ%<group>`, a topic of one queue that is created at its first message."""

    topics: TopicRegistry
    appender: Appender
    statistics: Statistics = field(default_factory=Statistics)

    async def bury(
        self, group: str, message: StoredMessage, attempts: int, reason: DeadLetterReason = DeadLetterReason.ATTEMPTS
    ) -> AppendedRecord:
        """Store a copy of `message` that was delivered `attempts` times; where it is, safe when this returns.

        Body, tag, keys and user properties stay. The origin stays the first one if the message came from a
        dead-letter topic. Raises what storing raises.
        """
        topic = DEAD_LETTER_PREFIX + group
        if self.topics.find(topic) is None:
            self.topics.create(TopicConfig(topic, read_queues=1, write_queues=1))
        origin_topic, place = bind_topic_of(message.topic), offset_message_id(message.store_host, message.log_offset)
        origin = {ORIGIN_TOPIC: origin_topic, ORIGIN_MESSAGE_ID: message.message_id or place}
        if properties.RETRY_TOPIC not in message.properties:
            # What RocketMQ's tools read; a message that was given back before has it from then.
            origin |= {properties.RETRY_TOPIC: origin_topic, properties.ORIGIN_MESSAGE_ID: place}
        copy = OutgoingMessage(
            topic=topic,
            body=message.body,
            properties={**origin, **message.properties, REASON: reason.value},
            queue_id=0,
            system_flag=message.system_flag,
            flag=message.flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            reconsume_times=attempts,
        )
        appended = await self.appender.append(PendingRecord(copy, 0))
        self.statistics.note_dead_letter(group, origin_topic)
        return appended

    async def bury_all(self, group: str, dead: Sequence[ExhaustedDelivery]) -> list[ExhaustedDelivery]:
        """Move what has no attempt left, and consume it; what could be moved. The rest stays in flight for now."""
        moved = []
        for one in dead:
            message = one.message
            try:
                await self.bury(group, message, one.attempts)
            except MillstreamError as error:
                _log.error(
                    "The message at queue offset %d of topic %s, queue %d, stays with the group %s: %s",
                    message.queue_offset, message.topic, message.queue_id, group, error,
                )  # fmt: skip
                continue
            one.ledger.settle(one.delivery.queue_offset)
            moved.append(one)
        return moved


def dead_letter_of(message: StoredMessage, *, is_redriven: bool) -> DeadLetter:
    """What a message of a dead-letter topic tells about itself."""
    told = message.properties.get(REASON)
    return DeadLetter(
        queue_offset=message.queue_offset,
        message_id=message.message_id,
        origin_topic=message.properties.get(ORIGIN_TOPIC, ""),
        origin_message_id=message.properties.get(ORIGIN_MESSAGE_ID, ""),
        attempts=message.reconsume_times,
        dead_ms=message.store_timestamp_ms,
        reason=told or "",
        size_bytes=len(message.body),
        is_redriven=is_redriven,
    )
