"""Half messages of transactions, the marks that end them, and the messages that they become.

A half message is a record of `HALF_TOPIC` that no consumer sees. Its end is a mark in `OP_TOPIC`; a committed message
and its mark are stored by one write, the message first. Both name the half message by its queue offset. Source of
names, topics and the mark's tag and body: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

from millstream.broker.delivery.staged_messages import stage, unstage
from millstream.model import properties as names
from millstream.model.message import OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.operations import RECOVERY_TIME_S
from millstream.model.properties import REAL_QUEUE, REAL_TOPIC

__all__ = [
    "GIVEN_UP_TOPIC",
    "HALF_OF",
    "HALF_TOPIC",
    "OP_TOPIC",
    "Outcome",
    "committed_message_of",
    "given_up",
    "half",
    "mark",
    "outcome_of",
    "recovery_ms_of",
    "settles",
    "shown_to_producer",
]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""The system topic whose queue 0 holds the messages of transactions that have not ended."""

OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""The system topic whose queue 0 says which of them have ended, and how."""

GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic of messages whose producers never said how their transactions ended."""

HALF_OF: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""In a committed or given up message, and in a mark: the queue offset of its half message."""

_OUTCOME = "__TRANSACTION_OUTCOME"
_MARK_TAG = "d"
_COMMIT = int(SystemFlag.TRANSACTION_COMMIT)
_WAITING = frozenset((names.TRANSACTION, RECOVERY_TIME_S))


class Outcome(Enum):
    """How a transaction ended, as its mark says."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"


def half(message: OutgoingMessage, queue_id: int) -> OutgoingMessage:
    """The message as it waits for the end of its transaction."""
    flag = SystemFlag(int(message.system_flag) & ~int(SystemFlag.TRANSACTION_ROLLBACK))
    return stage(replace(message, system_flag=flag), HALF_TOPIC, queue_id, **{names.TRANSACTION: "true"})


def recovery_ms_of(message: StoredMessage | OutgoingMessage) -> int | None:
    """How long after the send the producer wants to be asked for the first time, None for the broker's own time."""
    seconds = message.properties.get(RECOVERY_TIME_S, "")
    return int(seconds) * 1000 if seconds.isdecimal() and int(seconds) else None


def committed_message_of(message: StoredMessage) -> OutgoingMessage | None:
    """What consumers get of a half message; None for a record that names no topic."""
    found = unstage(message, without=_WAITING)
    if found is None:
        return None
    found.properties[HALF_OF] = str(message.queue_offset)
    if message.message_id:
        found.properties[names.TRANSACTION_ID] = message.message_id
    flag = SystemFlag(int(found.system_flag) | _COMMIT)
    return replace(found, system_flag=flag, prepared_transaction_offset=message.log_offset)


def given_up(message: StoredMessage) -> OutgoingMessage:
    """A half message as it is kept for people; it still says where it belongs."""
    return OutgoingMessage(
        topic=GIVEN_UP_TOPIC,
        body=message.body,
        properties={**message.properties, HALF_OF: str(message.queue_offset)},
        queue_id=0,
        system_flag=message.system_flag,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        prepared_transaction_offset=message.log_offset,
    )


def mark(message: StoredMessage, outcome: Outcome) -> OutgoingMessage:
    """The record that says how the transaction of a half message ended; it is found by the message's id."""
    offset = str(message.queue_offset)
    held = {
        names.TAGS: _MARK_TAG,
        names.UNIQUE_KEY: message.message_id,
        REAL_TOPIC: message.properties.get(REAL_TOPIC, ""),
        HALF_OF: offset,
        _OUTCOME: outcome.value,
    }
    return OutgoingMessage(OP_TOPIC, offset.encode(), held, queue_id=0)


def outcome_of(message: StoredMessage) -> Outcome | None:
    """What a mark says; None for another record."""
    told = message.properties.get(_OUTCOME)
    return Outcome(told) if message.topic == OP_TOPIC and told else None


def settles(message: StoredMessage) -> bool:
    """Whether a record that names a half message says by itself that its transaction has ended.

    Clients can store neither a record of a system topic nor one with this flag.
    """
    return message.topic in (OP_TOPIC, GIVEN_UP_TOPIC) or bool(int(message.system_flag) & _COMMIT)


def shown_to_producer(message: StoredMessage) -> StoredMessage:
    """A half message in the topic and queue that its producer sent it to, still at its offset of the half topic."""
    queue = message.properties.get(REAL_QUEUE, "")
    queue_id = int(queue) if queue.isdecimal() else message.queue_id
    return replace(message, topic=message.properties.get(REAL_TOPIC, message.topic), queue_id=queue_id)
