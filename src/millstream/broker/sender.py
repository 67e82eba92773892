"""Send: admit messages, choose their queue, hand them to the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from millstream.broker.admission import check_messages
from millstream.broker.topics import TopicRegistry
from millstream.model import properties
from millstream.model.errors import MessageRefused
from millstream.model.filter import java_hash_code
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.protocol.record import offset_message_id
from millstream.store.appender import Appender
from millstream.store.message_store import PendingRecord

__all__ = ["Sender"]

_hash_code = lru_cache(maxsize=4096)(java_hash_code)
"""Message groups repeat."""


@dataclass(slots=True)
class Sender:
    """Answers sends."""

    topics: TopicRegistry
    appender: Appender
    store_host: Address
    _turns: dict[str, int] = field(default_factory=dict)

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """Store messages of one topic, all or none, in their order where they share a queue."""
        if not messages:
            raise MessageRefused("MESSAGE_MALFORMED", "A send has no message.")
        topic = self.topics.get(messages[0].topic)
        check_messages(messages, topic)
        turn = self._turns.get(topic.name, 0)
        self._turns[topic.name] = turn + 1
        shared_queue = turn % topic.write_queues
        pending = [
            PendingRecord(
                message,
                _queue_of(message, shared_queue, topic.write_queues),
                message.message_count if topic.holds_batches else None,
            )
            for message in messages
        ]
        appended = await self.appender.append_many(pending)
        id_prefix = _id_prefix(self.store_host)
        return [
            SendReceipt(
                message_id=record.message.properties.get(properties.UNIQUE_KEY, ""),
                offset_message_id=f"{id_prefix}{place.log_offset:016X}",
                queue_id=record.queue_id,
                queue_offset=place.queue_offset,
                log_offset=place.log_offset,
                store_timestamp_ms=place.store_timestamp_ms,
            )
            for record, place in zip(pending, appended, strict=True)
        ]

    def forget(self, topic: str) -> None:
        """Drop what is held here of a deleted topic."""
        self._turns.pop(topic, None)


@lru_cache(maxsize=8)
def _id_prefix(store_host: Address) -> str:
    """What all offset message ids of a broker begin with, before the log offset's 16 digits."""
    return offset_message_id(store_host, 0)[:-16]


def _queue_of(message: OutgoingMessage, shared_queue: int, queues: int) -> int:
    """The queue that the sender asked for, else the one of its message group, else the call's."""
    if message.queue_id is not None:
        return message.queue_id
    group = message.properties.get(properties.MESSAGE_GROUP)
    return shared_queue if group is None else _hash_code(group) % queues
