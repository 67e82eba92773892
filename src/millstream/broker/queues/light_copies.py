"""Presents a record to readers of light queues, and makes copies of records that cannot name all light queues.

A record names its light queues in its properties, which hold less than 32 KiB. For those that do not fit the message is
stored once more, in a system topic that nobody reads, with its own topic in a property as staged messages have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from millstream.model.errors import MessageRefused
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.properties import (
    MAX_STORED_BYTES,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    REAL_QUEUE,
    REAL_TOPIC,
    encode_properties,
)
from millstream.store.write_batch import PendingRecord

__all__ = [
    "COPY_TOPIC",
    "MAX_COPIES",
    "MAX_OFFSET_CHARACTERS",
    "as_light_message",
    "dispatch_record",
    "have_room",
    "place_in_light_queue",
]

COPY_TOPIC: Final = "rmq_sys_MILLSTREAM_LIGHT_COPIES"
"""The system topic of the copies. It has no consumers: light queues lead to its records."""

MAX_COPIES: Final = 16
"""Copies of one message at most; one with so many properties that more are needed is refused."""

MAX_OFFSET_CHARACTERS: Final = 19
"""Characters of a queue offset at most: those of the largest int64."""

_SEPARATORS: Final = 2
_MAX_CHARACTER_BYTES: Final = 4
_HIDDEN: Final = frozenset((MULTI_DISPATCH, MULTI_QUEUE_OFFSET))
_OWN: Final = _HIDDEN | {REAL_TOPIC, REAL_QUEUE}
_NAMES_BYTES: Final = len(encode_properties({MULTI_DISPATCH: "", MULTI_QUEUE_OFFSET: ""}))


def dispatch_record(record: PendingRecord, light_queues: tuple[str, ...]) -> list[PendingRecord]:
    """The record with as many of the light queues as fit, and copies with the others. Raises TOO_MANY_LIGHT_QUEUES."""
    message = record.message
    if _fit_surely(message, light_queues):
        return [record._replace(light_queues=light_queues)]
    room_bytes = _room_bytes(message)
    count = _fitting(light_queues, 0, room_bytes)
    dispatched = [record._replace(light_queues=light_queues[:count])]
    if count == len(light_queues):
        return dispatched
    copy = replace(
        message,
        topic=COPY_TOPIC,
        properties={**message.properties, REAL_TOPIC: message.topic, REAL_QUEUE: str(record.queue_id)},
        queue_id=LIGHT_QUEUE_NUMBER,
    )
    room_bytes = _room_bytes(copy)
    while count < len(light_queues):
        end = _fitting(light_queues, count, room_bytes)
        if end == count or len(dispatched) > MAX_COPIES:
            raise MessageRefused(
                "TOO_MANY_LIGHT_QUEUES",
                f"{len(light_queues)} light queues want a message of the topic {message.topic!r}, and its properties "
                f"leave room to name {count} in a record and {MAX_COPIES} copies.",
                remedy="Send it with smaller properties.",
            )
        dispatched.append(PendingRecord(copy, LIGHT_QUEUE_NUMBER, None, light_queues[count:end]))
        count = end
    return dispatched


def as_light_message(message: StoredMessage, queue_offset: int) -> StoredMessage:
    """A message as a light queue has it at an offset: of its own topic, with the place in the light queue."""
    topic = message.topic
    hidden = _HIDDEN
    if topic == COPY_TOPIC:
        topic, hidden = message.properties.get(REAL_TOPIC, topic), _OWN
    kept = {name: value for name, value in message.properties.items() if name not in hidden}
    # By position: every delivery makes one, and `dataclasses.replace` takes five times as long.
    return StoredMessage(
        topic,
        LIGHT_QUEUE_NUMBER,
        queue_offset,
        message.log_offset,
        message.body,
        kept,
        message.born_timestamp_ms,
        message.born_host,
        message.store_timestamp_ms,
        message.store_host,
        message.system_flag,
        message.flag,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )


def place_in_light_queue(messages: Sequence[StoredMessage], queue_offset: int) -> None:
    """The same for messages that were just decoded and that nobody has seen, in place: they follow each other in the
    light queue from an offset on."""
    for message in messages:
        held = message.properties
        if message.topic == COPY_TOPIC:
            message.topic = held.pop(REAL_TOPIC, message.topic)
            held.pop(REAL_QUEUE, None)
        held.pop(MULTI_DISPATCH, None)
        held.pop(MULTI_QUEUE_OFFSET, None)
        message.queue_id, message.queue_offset = LIGHT_QUEUE_NUMBER, queue_offset
        queue_offset += 1


def have_room(properties_bytes: int, light_queues: tuple[str, ...]) -> bool:
    """Whether properties of so many bytes leave room to name all these light queues."""
    places_bytes = sum([len(name) + MAX_OFFSET_CHARACTERS + _SEPARATORS for name in light_queues])
    return properties_bytes + places_bytes + _NAMES_BYTES <= MAX_STORED_BYTES


def _fit_surely(message: OutgoingMessage, light_queues: tuple[str, ...]) -> bool:
    """Whether all fit even if each character took four bytes: so it is with most, and need not be counted exactly."""
    characters = sum([len(name) + len(value) + _SEPARATORS for name, value in message.properties.items()])
    return have_room(_MAX_CHARACTER_BYTES * characters, light_queues)


def _room_bytes(message: OutgoingMessage) -> int:
    held = {name: value for name, value in message.properties.items() if name not in _HIDDEN}
    return MAX_STORED_BYTES - len(encode_properties(held)) - _NAMES_BYTES


def _fitting(light_queues: Sequence[str], start: int, room_bytes: int) -> int:
    """Behind the last of the light queues from `start` on that fit together."""
    end = start
    while end < len(light_queues):
        room_bytes -= len(light_queues[end]) + MAX_OFFSET_CHARACTERS + _SEPARATORS
        if room_bytes < 0:
            break
        end += 1
    return end
