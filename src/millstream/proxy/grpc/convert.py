"""Messages that clients send, from the service's form to the domain's."""

from __future__ import annotations

from millstream.model.errors import MessageRefused
from millstream.model.message import Message
from millstream.model.topic import MessageType
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.call import Call
from millstream.proxy.grpc.duration import duration_ms, timestamp_ms
from millstream.proxy.submission import Submission

__all__ = ["MESSAGE_TYPES", "submission"]

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


def submission(message: m.Message, call: Call) -> Submission:
    """A message that a producer sent."""
    system = message.system_properties
    has = system.HasField
    encoding = system.body_encoding
    if encoding not in _ENCODINGS:
        raise MessageRefused("MESSAGE_MALFORMED", f"The body's encoding {encoding} is unknown.")
    keys, user_properties = system.keys, message.user_properties
    # By position: names cost as much as the values, and every send makes these two.
    sent = Message(
        message.topic.name,
        message.body,
        system.tag if has("tag") else None,
        tuple(keys) if keys else (),
        system.message_group if has("message_group") else None,
        dict(user_properties) if user_properties else {},
        system.priority if has("priority") else None,
        system.lite_topic if has("lite_topic") else None,
        timestamp_ms(system.delivery_timestamp) if has("delivery_timestamp") else None,
    )
    return Submission(
        sent,
        system.message_id,
        _TRANSACTION if system.message_type == m.TRANSACTION else _sent_type(sent),
        timestamp_ms(system.born_timestamp),
        system.born_host,
        call.peer,
        system.trace_context if has("trace_context") else None,
        # None leaves it to the broker, which is also what a time of nothing means.
        duration_ms(system.orphaned_transaction_recovery_duration) or None
        if has("orphaned_transaction_recovery_duration")
        else None,
        encoding == m.GZIP,
    )


def _sent_type(sent: Message) -> MessageType:
    """RocketMQ tells the type by what the message carries, not by what it says; TRANSACTION alone goes before that."""
    if sent.delivery_timestamp_ms is not None:
        return _DELAY
    if sent.message_group is not None:
        return _FIFO
    if sent.priority is not None:
        return _PRIORITY
    return _NORMAL if sent.lite_topic is None else _LITE
