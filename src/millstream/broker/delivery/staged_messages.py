"""Staged messages: stored in a system topic first, with the topic and queue where they belong, and moved there later.

What is brought to its place names the record it comes from, so a start finds in the log which of them are there
already. That is how delayed and transactional messages come exactly once over any crash. Source of the names:
RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from millstream.broker.queues.topics import TopicRegistry
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.properties import REAL_QUEUE, REAL_TOPIC
from millstream.protocol.record import decode_record
from millstream.store.message_store import EVER, MessageStore, PendingRecord

__all__ = ["marked_messages", "needed_from", "stage", "to_its_queue", "unstage"]

_PLACES = frozenset((REAL_TOPIC, REAL_QUEUE))


def stage(message: OutgoingMessage, system_topic: str, queue_id: int, **more: str) -> OutgoingMessage:
    """The message as it waits in queue 0 of the system topic; `more` properties say what it waits for."""
    places = {REAL_TOPIC: message.topic, REAL_QUEUE: str(queue_id), **more}
    return replace(message, topic=system_topic, properties={**message.properties, **places}, queue_id=0)


def unstage(message: StoredMessage, without: Collection[str] = ()) -> OutgoingMessage | None:
    """The message as it goes to its own topic and queue; None for a record that names none."""
    topic, queue = message.properties.get(REAL_TOPIC), message.properties.get(REAL_QUEUE, "")
    if not topic or not queue.isdecimal():
        return None
    return OutgoingMessage(
        topic=topic,
        body=message.body,
        properties={k: v for k, v in message.properties.items() if k not in _PLACES and k not in without},
        queue_id=int(queue),
        system_flag=message.system_flag,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
    )


def to_its_queue(message: OutgoingMessage, topics: TopicRegistry) -> PendingRecord | None:
    """What is stored of a message that was brought back, as its topic is now; None if the topic is gone."""
    topic = topics.find(message.topic)
    if topic is None:
        return None
    queue_id = (message.queue_id or 0) % topic.write_queues
    return PendingRecord(message, queue_id, 1 if topic.holds_batches else None)


def marked_messages(store: MessageStore, log_offset: int, name: str) -> tuple[list[tuple[StoredMessage, int]], int]:
    """Each visible record, in a stretch of the log from an offset on, that has a whole number in the property, and the
    number; and the log offset behind the stretch."""
    records, end = store.search(log_offset, name.encode() + b"\x01")
    messages = [decode_record(record, verify=False) for record in records]
    numbers = [(message, message.properties.get(name, "")) for message in messages]
    return [(message, int(number)) for message, number in numbers if number.isdecimal()], end


def needed_from(store: MessageStore, system_topic: str, queue_offset: int | None) -> int:
    """From which log offset on the log is needed while that message of the system topic is the oldest staged one."""
    found = [] if queue_offset is None else store.entries(system_topic, 0, queue_offset, 1)
    return found[0].log_offset if found else EVER
