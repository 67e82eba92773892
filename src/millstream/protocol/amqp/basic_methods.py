"""The AMQP 0-9-1 methods that publish, deliver and confirm messages, and end transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.protocol.amqp.method_codec import AmqpMethod, Bit, Long, LongLong, Short, ShortText, Table, method

__all__ = [
    "BasicAck",
    "BasicCancel",
    "BasicCancelOk",
    "BasicConsume",
    "BasicConsumeOk",
    "BasicDeliver",
    "BasicGet",
    "BasicGetEmpty",
    "BasicGetOk",
    "BasicNack",
    "BasicPublish",
    "BasicQos",
    "BasicQosOk",
    "BasicRecover",
    "BasicRecoverAsync",
    "BasicRecoverOk",
    "BasicReject",
    "BasicReturn",
    "ConfirmSelect",
    "ConfirmSelectOk",
    "TxCommit",
    "TxCommitOk",
    "TxRollback",
    "TxRollbackOk",
    "TxSelect",
    "TxSelectOk",
]


@method(60, 10)
@dataclass(frozen=True, slots=True)
class BasicQos(AmqpMethod):
    """How many unacknowledged messages a consumer may have, or the channel with `is_global`."""

    prefetch_bytes: Long = 0
    prefetch_count: Short = 0
    is_global: Bit = False


@method(60, 11)
@dataclass(frozen=True, slots=True)
class BasicQosOk(AmqpMethod):
    """The answer."""


@method(60, 20)
@dataclass(frozen=True, slots=True)
class BasicConsume(AmqpMethod):
    """Begin to get a queue's messages."""

    ticket: Short = 0
    queue: ShortText = ""
    consumer_tag: ShortText = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(60, 21)
@dataclass(frozen=True, slots=True)
class BasicConsumeOk(AmqpMethod):
    """The consumer's tag."""

    consumer_tag: ShortText = ""


@method(60, 30)
@dataclass(frozen=True, slots=True)
class BasicCancel(AmqpMethod):
    """End a consumer; RabbitMQ's servers say so as well."""

    consumer_tag: ShortText = ""
    no_wait: Bit = False


@method(60, 31)
@dataclass(frozen=True, slots=True)
class BasicCancelOk(AmqpMethod):
    """The answer."""

    consumer_tag: ShortText = ""


@method(60, 40, content=True)
@dataclass(frozen=True, slots=True)
class BasicPublish(AmqpMethod):
    """A message for an exchange."""

    ticket: Short = 0
    exchange: ShortText = ""
    routing_key: ShortText = ""
    mandatory: Bit = False
    immediate: Bit = False


@method(60, 50, content=True)
@dataclass(frozen=True, slots=True)
class BasicReturn(AmqpMethod):
    """A message that no queue got comes back."""

    reply_code: Short = 312
    reply_text: ShortText = ""
    exchange: ShortText = ""
    routing_key: ShortText = ""


@method(60, 60, content=True)
@dataclass(frozen=True, slots=True)
class BasicDeliver(AmqpMethod):
    """A message for a consumer."""

    consumer_tag: ShortText = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortText = ""
    routing_key: ShortText = ""


@method(60, 70)
@dataclass(frozen=True, slots=True)
class BasicGet(AmqpMethod):
    """Ask for one message."""

    ticket: Short = 0
    queue: ShortText = ""
    no_ack: Bit = False


@method(60, 71, content=True)
@dataclass(frozen=True, slots=True)
class BasicGetOk(AmqpMethod):
    """The message, and how many more are ready."""

    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortText = ""
    routing_key: ShortText = ""
    message_count: Long = 0


@method(60, 72)
@dataclass(frozen=True, slots=True)
class BasicGetEmpty(AmqpMethod):
    """There is none."""

    cluster_id: ShortText = ""


@method(60, 80)
@dataclass(frozen=True, slots=True)
class BasicAck(AmqpMethod):
    """Messages are consumed; servers say with it that messages are stored."""

    delivery_tag: LongLong = 0
    multiple: Bit = False


@method(60, 90)
@dataclass(frozen=True, slots=True)
class BasicReject(AmqpMethod):
    """A message is not consumed."""

    delivery_tag: LongLong = 0
    requeue: Bit = True


@method(60, 100)
@dataclass(frozen=True, slots=True)
class BasicRecoverAsync(AmqpMethod):
    """As `recover`, without an answer."""

    requeue: Bit = False


@method(60, 110)
@dataclass(frozen=True, slots=True)
class BasicRecover(AmqpMethod):
    """Put back all messages that are not acknowledged."""

    requeue: Bit = False


@method(60, 111)
@dataclass(frozen=True, slots=True)
class BasicRecoverOk(AmqpMethod):
    """The answer."""


@method(60, 120)
@dataclass(frozen=True, slots=True)
class BasicNack(AmqpMethod):
    """RabbitMQ's: messages are not consumed; servers say with it that messages are not stored."""

    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


@method(85, 10)
@dataclass(frozen=True, slots=True)
class ConfirmSelect(AmqpMethod):
    """RabbitMQ's: confirm each message of this channel."""

    no_wait: Bit = False


@method(85, 11)
@dataclass(frozen=True, slots=True)
class ConfirmSelectOk(AmqpMethod):
    """The answer."""


@method(90, 10)
@dataclass(frozen=True, slots=True)
class TxSelect(AmqpMethod):
    """Begin transactions on a channel; there are none here."""


@method(90, 11)
@dataclass(frozen=True, slots=True)
class TxSelectOk(AmqpMethod):
    """The answer."""


@method(90, 20)
@dataclass(frozen=True, slots=True)
class TxCommit(AmqpMethod):
    """End a transaction."""


@method(90, 21)
@dataclass(frozen=True, slots=True)
class TxCommitOk(AmqpMethod):
    """The answer."""


@method(90, 30)
@dataclass(frozen=True, slots=True)
class TxRollback(AmqpMethod):
    """End a transaction without effect."""


@method(90, 31)
@dataclass(frozen=True, slots=True)
class TxRollbackOk(AmqpMethod):
    """The answer."""
