"""Requests about single messages: found, sent back, recalled, put in bulk, ended. Codes 12, 33, 36, 307, 370, 9101.

Source of the names: RocketMQ 5.3 (facts only); 9101 and 9141 are our own.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.protocol.remoting.request import Request, flag_field, number_field, text_field

__all__ = ["BulkPut", "DirectConsumption", "KeySearchRequest", "LogOffset", "NamedTransactionEnd", "Recall", "SendBack"]


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
