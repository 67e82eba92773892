"""The queues of the topics: which there are, what can be read of each, and which offset belongs to a time."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.broker.queues.topics import TopicRegistry
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.operations import QueueRange
from millstream.store.message_store import MessageStore

__all__ = ["Queues", "outside"]


def outside(topic: str, held: QueueRange, queue_offset: int) -> ConsumeRefused:
    """The refusal of an offset that the queue does not have."""
    offsets = f"{held.min_offset} to {held.max_offset}"
    return ConsumeRefused(
        "ILLEGAL_OFFSET", f"Queue {held.queue_id} of {topic!r} has the offsets {offsets}; {queue_offset} is outside."
    )


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of all topics; every call is from the event loop's thread. Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND."""

    topics: TopicRegistry
    store: MessageStore

    def ranges(self, topic: str) -> list[QueueRange]:
        """What can be read of each queue, all as of one moment."""
        return [self._range(topic, queue_id) for queue_id in range(self.topics.get(topic).queues)]

    def range_of(self, topic: str, queue_id: int) -> QueueRange:
        """What can be read of one queue."""
        self.check(topic, queue_id)
        return self._range(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """The first offset stored at or after the time; `upper`: the last one stored at or before it."""
        self.check(topic, queue_id)
        return self.store.offset_by_time(topic, queue_id, timestamp_ms, upper=upper)

    def first_stored_ms(self, topic: str, queue_id: int) -> int | None:
        """When the first readable message of the queue was stored; None where there is none."""
        self.check(topic, queue_id)
        entries = self.store.entries(topic, queue_id, self.store.min_offset(topic, queue_id), 1)
        return self.store.stored_ms(entries[0]) if entries else None

    def check(self, topic: str, queue_id: int) -> None:
        """Refuse a queue that the topic does not have."""
        queues = self.topics.get(topic).queues
        if not 0 <= queue_id < queues:
            raise NameRefused(
                "QUEUE_NOT_FOUND", f"The topic {topic!r} has {queues} queues; {queue_id} is none of them."
            )

    def check_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Refuse an offset behind the queue's end, which messages to come have: ILLEGAL_OFFSET."""
        held = self.range_of(topic, queue_id)
        if queue_offset > held.max_offset:
            raise outside(topic, held, queue_offset)

    def _range(self, topic: str, queue_id: int) -> QueueRange:
        store = self.store
        return QueueRange(
            queue_id,
            store.min_offset(topic, queue_id),
            store.max_offset(topic, queue_id),
            store.last_store_timestamp_ms(topic, queue_id),
        )
