"""Trace records in the format that RocketMQ's clients write to the topic RMQ_SYS_TRACE_TOPIC.

A trace message's body holds any number of records, each of them fields joined by \\x01 and ended by \\x02; the first
field is the kind. Its KEYS are the ids and keys of the messages it tells of, by which it is found. Source: RocketMQ 5.3
(facts only).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from millstream.model.topic import MessageType

__all__ = [
    "TRACE_TOPIC",
    "ConsumedTrace",
    "DeliveredTrace",
    "EndTransactionTrace",
    "RecallTrace",
    "SentTrace",
    "TraceRecord",
    "decode_traces",
    "encode_trace",
    "message_type_number",
    "store_host_of",
]

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

_FIELD_END, _RECORD_END = "\x01", "\x02"
_TYPE_NUMBERS: Final = {MessageType.NORMAL: 0, MessageType.TRANSACTION: 1, MessageType.DELAY: 3, MessageType.FIFO: 4}
_SUCCESS, _FAILED = 0, 4
_LOG_OFFSET_DIGITS = 16


@dataclass(frozen=True, slots=True)
class SentTrace:
    """`Pub`: a producer sent a message. `store_host` and `offset_message_id` are blank where it failed."""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str
    keys: str
    store_host: str
    body_bytes: int
    took_ms: int
    type_number: int
    offset_message_id: str
    succeeded: bool


@dataclass(frozen=True, slots=True)
class DeliveredTrace:
    """`SubBefore`: a message was handed to a consumer. `retries` counts the deliveries before this one."""

    timestamp_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str


@dataclass(frozen=True, slots=True)
class ConsumedTrace:
    """`SubAfter`: the consumer said what became of a delivery, which has the same request id."""

    request_id: str
    message_id: str
    took_ms: int
    succeeded: bool
    keys: str
    timestamp_ms: int
    group: str


@dataclass(frozen=True, slots=True)
class EndTransactionTrace:
    """`EndTransaction`: a transaction was committed, rolled back or left open, by itself or when asked for."""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str
    keys: str
    store_host: str
    transaction_id: str
    state: str
    from_check: bool


@dataclass(frozen=True, slots=True)
class RecallTrace:
    """`Recall`: a producer took a delayed message back, or tried to."""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    succeeded: bool


TraceRecord = SentTrace | DeliveredTrace | ConsumedTrace | EndTransactionTrace | RecallTrace


def message_type_number(kind: MessageType) -> int:
    """The number that stands for a type of message; types that RocketMQ has no number for are ordinary ones."""
    return _TYPE_NUMBERS.get(kind, 0)


def store_host_of(offset_message_id: str) -> str:
    """`host:port` of the broker that an offset message id names. Raises ValueError for text that is none."""
    return _store_host(offset_message_id[:-_LOG_OFFSET_DIGITS])


@lru_cache(maxsize=64)
def _store_host(digits: str) -> str:
    packed = bytes.fromhex(digits)
    return f"{ip_address(packed[:-4])}:{int.from_bytes(packed[-4:], 'big')}"


def encode_trace(record: TraceRecord) -> str:
    """The record's text with its end mark."""
    return _FIELD_END.join(map(_text, _fields(record))) + _RECORD_END


def decode_traces(body: bytes) -> list[TraceRecord]:
    """The records of a trace message's body. What cannot be read is passed over: other products write there too."""
    found = []
    for line in body.decode("utf-8", "replace").split(_RECORD_END):
        words = ["" if word == "null" else word for word in line.split(_FIELD_END)]
        decode = _DECODERS.get(words[0])
        if decode is None:
            continue
        try:
            found.append(decode(words))
        except (ValueError, IndexError):
            continue
    return found


def _fields(record: TraceRecord) -> tuple[str | int | bool, ...]:
    r = record
    match r:
        case SentTrace():
            return ("Pub", r.timestamp_ms, r.region, r.group, r.topic, r.message_id, r.tag, r.keys, r.store_host,
                    r.body_bytes, r.took_ms, r.type_number, r.offset_message_id, r.succeeded)  # fmt: skip
        case DeliveredTrace():
            return ("SubBefore", r.timestamp_ms, r.region, r.group, r.request_id, r.message_id, r.retries, r.keys)
        case ConsumedTrace():
            return ("SubAfter", r.request_id, r.message_id, r.took_ms, r.succeeded, r.keys,
                    _SUCCESS if r.succeeded else _FAILED, r.timestamp_ms, r.group)  # fmt: skip
        case EndTransactionTrace():
            return ("EndTransaction", r.timestamp_ms, r.region, r.group, r.topic, r.message_id, r.tag, r.keys,
                    r.store_host, 2, r.transaction_id, r.state, r.from_check)  # fmt: skip
        case RecallTrace():
            return ("Recall", r.timestamp_ms, r.region, r.group, r.topic, r.message_id, r.succeeded)


def _text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace(_FIELD_END, "?").replace(_RECORD_END, "?")


def _decode_sent(words: list[str]) -> TraceRecord:
    return SentTrace(
        int(words[1]), words[2], words[3], words[4], words[5], words[6], words[7], words[8], int(words[9]),
        int(words[10]), int(words[11]), words[12], words[13] == "true",
    )  # fmt: skip


def _decode_delivered(words: list[str]) -> TraceRecord:
    return DeliveredTrace(int(words[1]), words[2], words[3], words[4], words[5], int(words[6]), words[7])


def _decode_consumed(words: list[str]) -> TraceRecord:
    return ConsumedTrace(words[1], words[2], int(words[3]), words[4] == "true", words[5], int(words[7]), words[8])


def _decode_end_transaction(words: list[str]) -> TraceRecord:
    return EndTransactionTrace(
        int(words[1]), words[2], words[3], words[4], words[5], words[6], words[7], words[8], words[10], words[11],
        words[12] == "true",
    )  # fmt: skip


def _decode_recalled(words: list[str]) -> TraceRecord:
    return RecallTrace(int(words[1]), words[2], words[3], words[4], words[5], words[6] == "true")


_DECODERS: Final[dict[str, Callable[[list[str]], TraceRecord]]] = {
    "Pub": _decode_sent,
    "SubBefore": _decode_delivered,
    "SubAfter": _decode_consumed,
    "EndTransaction": _decode_end_transaction,
    "Recall": _decode_recalled,
}
