"""Requests about single messages: view, send back, recall, bulk put; and end of transaction (37, 39)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import MessageRefused
from millstream.model.message import StoredMessage, SystemFlag
from millstream.model.operations import Resolution
from millstream.protocol.record import offset_message_id
from millstream.protocol.remoting.fields import Request, flag_field, integer, number_field, text, text_field

__all__ = [
    "CHECKS_ID",
    "UNDECIDED",
    "BulkPut",
    "DirectConsumption",
    "KeySearchRequest",
    "LogOffset",
    "NamedTransactionEnd",
    "Recall",
    "SendBack",
    "TransactionEnd",
    "check_fields",
    "decode_end",
    "encode_end",
]


@dataclass(frozen=True, slots=True)
class KeySearchRequest(Request):
    """Code 12: messages of a topic by a key, stored in a span of milliseconds since 1970."""

    topic: str = text_field("topic")
    key: str = text_field("key")
    begin_ms: int = number_field("beginTimestamp")
    end_ms: int = number_field("endTimestamp")
    max_results: int = number_field("maxNum")
    is_unique: bool = flag_field("_UNIQUE_KEY_QUERY")
    """Whether the key is a message id."""


@dataclass(frozen=True, slots=True)
class LogOffset(Request):
    """Code 33: the message at an offset of the log."""

    log_offset: int = number_field("offset")


@dataclass(frozen=True, slots=True)
class SendBack(Request):
    """Code 36: a message that a consumer could not consume, to be delivered again."""

    group: str = text_field("group")
    log_offset: int = number_field("offset")
    delay_level: int = number_field("delayLevel", 0)
    """0 leaves the delay to the group; a negative one makes it a dead letter."""
    message_id: str = text_field("originMsgId", "")
    topic: str = text_field("originTopic", "")
    max_reconsume_times: int = number_field("maxReconsumeTimes", -1)
    """The consumer's own limit; a negative one leaves it to the group."""


@dataclass(frozen=True, slots=True)
class Recall(Request):
    """Code 370: a delayed message that is not to be delivered."""

    topic: str = text_field("topic")
    handle: str = text_field("recallHandle")


@dataclass(frozen=True, slots=True)
class BulkPut(Request):
    """Code 9101: an Arrow batch in the body, with its number of rows and the CRC-32 of its bytes."""

    topic: str = text_field("topic")
    queue_id: int = number_field("queueId")
    """Negative: the broker chooses."""
    rows: int = number_field("rows")
    checksum: int = number_field("crc32")
    born_ms: int = number_field("bornTimestamp", 0)
    """When the producer made it, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class NamedTransactionEnd(Request):
    """Code 9141: the end of a transaction by its id."""

    topic: str = text_field("topic")
    transaction_id: str = text_field("transactionId")
    resolution: str = text_field("resolution")


@dataclass(frozen=True, slots=True)
class DirectConsumption(Request):
    """Code 309: a message that one consumer is to consume now."""

    group: str = text_field("consumerGroup")
    message_id: str = text_field("msgId")
    topic: str = text_field("topic", "")


CHECKS_ID: Final = "checksId"
"""A field that RocketMQ does not have: the request goes to several brokers, and what lies at its offsets must have the
id of its field transactionId or msgId as well."""

UNDECIDED: Final = {"commitOrRollback": "0"}
"""The field of a request that changes nothing; its answer says by `topic` of which one the half message is."""

_RESOLUTIONS: Final = {
    int(SystemFlag.TRANSACTION_COMMIT): Resolution.COMMIT,
    int(SystemFlag.TRANSACTION_ROLLBACK): Resolution.ROLLBACK,
    0: Resolution.UNKNOWN,
}
_IDS: Final = ("transactionId", "msgId")
_NUMBERS: Final = {resolution: number for number, resolution in _RESOLUTIONS.items()}


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """What a producer says of its transaction, whose half message lies at these offsets.

    Older clients leave the topic blank.
    """

    resolution: Resolution
    producer_group: str
    queue_offset: int
    log_offset: int
    topic: str = ""
    message_ids: frozenset[str] = frozenset()
    """One of them must be the half message's, where there are any."""


def encode_end(end: TransactionEnd, message_id: str, broker_name: str) -> dict[str, str]:
    """The fields of a request 37."""
    return {
        "producerGroup": end.producer_group,
        "tranStateTableOffset": str(end.queue_offset),
        "commitLogOffset": str(end.log_offset),
        "commitOrRollback": str(_NUMBERS[end.resolution]),
        "topic": end.topic,
        "msgId": message_id,
        "transactionId": message_id,
        "bname": broker_name,
    }


def decode_end(ext: Mapping[str, str]) -> TransactionEnd:
    """What the fields of a request 37 say. MESSAGE_MALFORMED."""
    number = integer(ext, "commitOrRollback")
    resolution = _RESOLUTIONS.get(number)
    if resolution is None:
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"The field commitOrRollback is {number}.",
            remedy="Send 8 to commit, 12 to roll back, or 0 if it is not known yet.",
        )
    return TransactionEnd(
        resolution,
        text(ext, "producerGroup"),
        integer(ext, "tranStateTableOffset"),
        integer(ext, "commitLogOffset"),
        ext.get("topic", ""),
        frozenset(ext.get(name, "") for name in _IDS) if ext.get(CHECKS_ID) == "true" else frozenset(),
    )


def check_fields(half: StoredMessage) -> dict[str, str]:
    """The fields of a request 39 about a half message, which is shown under the topic that it was sent to."""
    return {
        "topic": half.topic,
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.log_offset),
        "msgId": half.message_id,
        "transactionId": half.message_id,
        "offsetMsgId": offset_message_id(half.store_host, half.log_offset),
    }
