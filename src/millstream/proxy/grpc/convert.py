"""Messages between the service's form and the domain's."""

from __future__ import annotations

from millstream.broker.dead_letters import ORIGIN_MESSAGE_ID, ORIGIN_TOPIC
from millstream.model import properties
from millstream.model.errors import MessageRefused
from millstream.model.message import Message, StoredMessage, SystemFlag
from millstream.model.operations import PoppedMessage
from millstream.model.topic import MessageType
from millstream.protocol.grpc import messages as m
from millstream.protocol.record import offset_message_id
from millstream.proxy.grpc.body import md5_text, plain_body
from millstream.proxy.grpc.call import Call
from millstream.proxy.grpc.duration import duration_ms, set_duration, set_timestamp, timestamp_ms
from millstream.proxy.submission import Submission

__all__ = ["MESSAGE_TYPES", "delivery", "shown", "submission"]

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

_OPTIONAL = frozenset(
    (
        properties.TAGS,
        properties.KEYS,
        properties.MESSAGE_GROUP,
        properties.PRIORITY,
        properties.LITE_TOPIC,
        properties.TRACE_CONTEXT,
        ORIGIN_TOPIC,
    )
)
_COMMITTED = int(SystemFlag.TRANSACTION_COMMIT)


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


def delivery(popped: PoppedMessage, topic: m.Resource) -> m.ReceiveMessageResponse:
    """The frame with a message as a consumer receives it; `topic` is the name by which the consumer asked."""
    frame = m.ReceiveMessageResponse()
    handle = popped.handle
    system = _show(popped.message, topic, frame.message, max(popped.delivery_attempt, 1))
    system.receipt_handle = handle.encode()
    set_duration(system.invisible_duration, handle.invisible_ms)
    return frame


def shown(stored: StoredMessage, topic: m.Resource) -> m.Message:
    """A message as a client reads it, without a receipt handle: nobody can acknowledge it."""
    message = m.Message()
    # The Python client's nack loops for ever over an attempt below 1.
    _show(stored, topic, message, delivery_attempt=1)
    return message


def _show(stored: StoredMessage, topic: m.Resource, message: m.Message, delivery_attempt: int) -> m.SystemProperties:
    """Fill an empty message in its place: a part that is made alone is copied when it is put in, the body too."""
    held, system = stored.properties, message.system_properties
    body = plain_body(stored)
    message.topic.CopyFrom(topic)
    message.body = body
    user_properties = stored.user_properties
    if user_properties:
        message.user_properties.update(user_properties)
    system.message_id = held.get(properties.UNIQUE_KEY) or _place_id(stored)
    digest = system.body_digest
    digest.type = m.MD5
    digest.checksum = md5_text(body)
    system.body_encoding = m.IDENTITY
    system.message_type = _stored_type(stored)
    set_timestamp(system.born_timestamp, stored.born_timestamp_ms)
    system.born_host = held.get(properties.BORN_HOST) or stored.born_host.host
    set_timestamp(system.store_timestamp, stored.store_timestamp_ms)
    store_host = stored.store_host
    system.store_host = f"{store_host.host}:{store_host.port}"
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    system.delivery_attempt = delivery_attempt
    if not _OPTIONAL.isdisjoint(held):
        _show_optional(stored, system)
    return system


def _show_optional(stored: StoredMessage, system: m.SystemProperties) -> None:
    """What a message may have; clients ask whether it is there."""
    held = stored.properties
    if (tag := stored.tag) is not None:
        system.tag = tag
    if keys := stored.keys:
        system.keys.extend(keys)
    if (group := held.get(properties.MESSAGE_GROUP)) is not None:
        system.message_group = group
    if (priority := stored.priority) is not None:
        system.priority = priority
    if (lite_topic := held.get(properties.LITE_TOPIC)) is not None:
        system.lite_topic = lite_topic
    if (trace_context := held.get(properties.TRACE_CONTEXT)) is not None:
        system.trace_context = trace_context
    if (origin := held.get(ORIGIN_TOPIC)) is not None:
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = held.get(ORIGIN_MESSAGE_ID, "")


def _place_id(stored: StoredMessage) -> str:
    """An id for a message whose sender gave it none, as rows of the bulk lane: no two have the same place."""
    return f"{offset_message_id(stored.store_host, stored.log_offset)}{stored.queue_offset:016X}"


def _stored_type(stored: StoredMessage) -> m.MessageType:
    held = stored.properties
    if int(stored.system_flag) & _COMMITTED or properties.TRANSACTION in held:
        return m.TRANSACTION
    if properties.MESSAGE_GROUP in held:
        return m.FIFO
    if properties.PRIORITY in held:
        return m.PRIORITY
    return m.LITE if properties.LITE_TOPIC in held else m.NORMAL
