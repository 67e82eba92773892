"""Converts messages, filters and times of clients from the service's form to the domain's."""

from __future__ import annotations

from functools import lru_cache

from millstream.broker.delivery.admission import check_keys, check_user_properties
from millstream.model import properties as names
from millstream.model.errors import MessageRefused
from millstream.model.filter import FilterKind, MessageFilter
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.model.operations import RECOVERY_TIME_S
from millstream.model.sql_filter import parse_filter
from millstream.model.topic import MessageType
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.wire import VARINTS, number_field, tag
from millstream.proxy.grpc.call import GrpcCall

__all__ = ["MESSAGE_TYPES", "duration_ms", "encoded_time", "message_filter", "outgoing_message", "timestamp_ms"]


_LAST_MS = 253_402_300_799_999
"""What a Timestamp may hold at most."""

_KEPT_TIMES = 4096
"""Points and lengths of time whose bytes are kept: messages that were sent together were stored together."""

# Both have the same two fields.
_SECONDS, _NANOS = tag(m.Timestamp, "seconds"), tag(m.Timestamp, "nanos")
_NANOS_BY_MS = tuple(number_field(_NANOS, number * 1_000_000) for number in range(1000))


def duration_ms(value: m.Duration) -> int:
    """Milliseconds of a length of time, cut to whole ones; a client's value may have any sign and size."""
    return value.seconds * 1000 + value.nanos // 1_000_000


@lru_cache(maxsize=_KEPT_TIMES)
def encoded_time(time_ms: int) -> bytes:
    """A Timestamp, or a Duration that is not negative, in wire format behind its length.

    Points in time before 1970 count as 1970, those after the year 9999 as its end.
    """
    if not 0 <= time_ms <= _LAST_MS:
        time_ms = min(max(time_ms, 0), _LAST_MS)
    written = _seconds(time_ms // 1000) + _NANOS_BY_MS[time_ms % 1000]
    return VARINTS[len(written)] + written


@lru_cache(maxsize=_KEPT_TIMES)
def _seconds(number: int) -> bytes:
    return number_field(_SECONDS, number)


def timestamp_ms(value: m.Timestamp) -> int:
    """Milliseconds since 1970 of a point in time, cut to whole ones."""
    return value.seconds * 1000 + value.nanos // 1_000_000


# As plain texts: what is kept is found by their hash, and an enum's runs in Python.
_TAG, _SQL = FilterKind.TAG.value, FilterKind.SQL.value


def message_filter(expression: m.FilterExpression) -> MessageFilter:
    """The filter that the expression says; one without a type is by tag. Raises ILLEGAL_FILTER."""
    return parse_filter(_SQL if expression.type == m.SQL else _TAG, expression.expression)


MESSAGE_TYPES: dict[MessageType, tuple[m.MessageType, ...]] = {
    MessageType.NORMAL: (m.NORMAL,),
    MessageType.FIFO: (m.FIFO,),
    MessageType.DELAY: (m.DELAY,),
    MessageType.TRANSACTION: (m.TRANSACTION,),
    MessageType.MIXED: (m.NORMAL, m.FIFO, m.DELAY, m.TRANSACTION),
    MessageType.LITE: (m.LITE,),
    MessageType.PRIORITY: (m.PRIORITY,),
}
"""What a topic of each type accepts."""

_ENCODINGS = frozenset((m.IDENTITY, m.GZIP, m.ENCODING_UNSPECIFIED))

# At hand, because in Python 3.11 the way from an enum's class to a member runs in Python.
_NORMAL, _FIFO, _DELAY = MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY
_TRANSACTION, _LITE, _PRIORITY = MessageType.TRANSACTION, MessageType.LITE, MessageType.PRIORITY
_COMPRESSED, _PLAIN = SystemFlag.COMPRESSED, SystemFlag.NONE


def outgoing_message(message: m.Message, call: GrpcCall) -> OutgoingMessage:
    """The message that a producer sent, with its reserved properties, as the broker gets it.

    Refused is only what cannot be seen any more once they are joined: a blank id, keys that would fall apart, and
    user properties with reserved names. The rest is the broker's to judge. Compressed bodies are stored as they came.
    """
    system = message.system_properties
    has = system.HasField
    encoding, message_id = system.body_encoding, system.message_id
    if encoding not in _ENCODINGS:
        raise MessageRefused("MESSAGE_MALFORMED", f"The body's encoding {encoding} is unknown.")
    if not message_id.strip():
        raise MessageRefused("ILLEGAL_MESSAGE_ID", "The message id is blank.")
    topic, born_ms = message.topic.name, timestamp_ms(system.born_timestamp)
    sent_keys, sent_properties = system.keys, message.user_properties
    keys = tuple(sent_keys) if sent_keys else ()
    user_properties = dict(sent_properties) if sent_properties else {}
    tag = system.tag if has("tag") else None
    if keys:
        check_keys(keys)
    if user_properties or keys or tag:
        check_user_properties(user_properties, tag, keys)
    group = system.message_group if has("message_group") else None
    priority = system.priority if has("priority") else None
    lite_topic = system.lite_topic if has("lite_topic") else None
    due_ms = timestamp_ms(system.delivery_timestamp) if has("delivery_timestamp") else None
    held = {names.UNIQUE_KEY: message_id}
    names.put_sorting_properties(held, tag, keys, group, priority, lite_topic)
    # RocketMQ's proxy takes the topic as the producer group too: gRPC producers have no group of their own.
    held[names.PRODUCER_GROUP] = topic
    if system.message_type == m.TRANSACTION:
        kind = _TRANSACTION
        held[names.TRANSACTION] = "true"
    else:
        kind = _sent_type(due_ms, group, priority, lite_topic)
    if has("orphaned_transaction_recovery_duration"):
        recovery_ms = duration_ms(system.orphaned_transaction_recovery_duration)
        # A time of nothing leaves it to the broker.
        if recovery_ms:
            held[RECOVERY_TIME_S] = str(-(-recovery_ms // 1000))
    if due_ms is not None:
        held[names.DELIVERY_TIME_MS] = str(due_ms)
    if system.born_host:
        held[names.BORN_HOST] = system.born_host
    held[names.BORN_TIMESTAMP] = str(born_ms)
    if has("trace_context"):
        held[names.TRACE_CONTEXT] = system.trace_context
    if user_properties:
        held.update(user_properties)
    flag = _COMPRESSED if encoding == m.GZIP else _PLAIN
    # By position: names cost as much as the values, and every send makes one.
    return OutgoingMessage(topic, message.body, held, kind, None, flag, 0, born_ms, call.peer)


def _sent_type(
    due_ms: int | None, message_group: str | None, priority: int | None, lite_topic: str | None
) -> MessageType:
    """RocketMQ tells the type by what the message carries, not by what it says; TRANSACTION alone goes before that."""
    if due_ms is not None:
        return _DELAY
    if message_group is not None:
        return _FIFO
    if priority is not None:
        return _PRIORITY
    return _NORMAL if lite_topic is None else _LITE
