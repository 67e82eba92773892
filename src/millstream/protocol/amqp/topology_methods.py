"""The AMQP 0-9-1 methods that declare and delete exchanges, queues and bindings."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.protocol.amqp.method_codec import AmqpMethod, Bit, Long, Short, ShortText, Table, method

__all__ = [
    "ExchangeBind",
    "ExchangeBindOk",
    "ExchangeDeclare",
    "ExchangeDeclareOk",
    "ExchangeDelete",
    "ExchangeDeleteOk",
    "ExchangeUnbind",
    "ExchangeUnbindOk",
    "QueueBind",
    "QueueBindOk",
    "QueueDeclare",
    "QueueDeclareOk",
    "QueueDelete",
    "QueueDeleteOk",
    "QueuePurge",
    "QueuePurgeOk",
    "QueueUnbind",
    "QueueUnbindOk",
]


@method(40, 10)
@dataclass(frozen=True, slots=True)
class ExchangeDeclare(AmqpMethod):
    """Make an exchange, or see with `passive` whether there is one."""

    ticket: Short = 0
    exchange: ShortText = ""
    kind: ShortText = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(40, 11)
@dataclass(frozen=True, slots=True)
class ExchangeDeclareOk(AmqpMethod):
    """The answer."""


@method(40, 20)
@dataclass(frozen=True, slots=True)
class ExchangeDelete(AmqpMethod):
    """Remove an exchange."""

    ticket: Short = 0
    exchange: ShortText = ""
    if_unused: Bit = False
    no_wait: Bit = False


@method(40, 21)
@dataclass(frozen=True, slots=True)
class ExchangeDeleteOk(AmqpMethod):
    """The answer."""


@method(40, 30)
@dataclass(frozen=True, slots=True)
class ExchangeBind(AmqpMethod):
    """RabbitMQ's: let an exchange get messages of another one."""

    ticket: Short = 0
    destination: ShortText = ""
    source: ShortText = ""
    routing_key: ShortText = ""
    no_wait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(40, 31)
@dataclass(frozen=True, slots=True)
class ExchangeBindOk(AmqpMethod):
    """The answer."""


@method(40, 40)
@dataclass(frozen=True, slots=True)
class ExchangeUnbind(AmqpMethod):
    """RabbitMQ's: the opposite."""

    ticket: Short = 0
    destination: ShortText = ""
    source: ShortText = ""
    routing_key: ShortText = ""
    no_wait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(40, 51)
@dataclass(frozen=True, slots=True)
class ExchangeUnbindOk(AmqpMethod):
    """The answer."""


@method(50, 10)
@dataclass(frozen=True, slots=True)
class QueueDeclare(AmqpMethod):
    """Make a queue, or see with `passive` whether there is one."""

    ticket: Short = 0
    queue: ShortText = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(50, 11)
@dataclass(frozen=True, slots=True)
class QueueDeclareOk(AmqpMethod):
    """The queue's name, its messages that are ready, and its consumers."""

    queue: ShortText = ""
    message_count: Long = 0
    consumer_count: Long = 0


@method(50, 20)
@dataclass(frozen=True, slots=True)
class QueueBind(AmqpMethod):
    """Let a queue get messages of an exchange."""

    ticket: Short = 0
    queue: ShortText = ""
    exchange: ShortText = ""
    routing_key: ShortText = ""
    no_wait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(50, 21)
@dataclass(frozen=True, slots=True)
class QueueBindOk(AmqpMethod):
    """The answer."""


@method(50, 30)
@dataclass(frozen=True, slots=True)
class QueuePurge(AmqpMethod):
    """Remove the messages that are ready."""

    ticket: Short = 0
    queue: ShortText = ""
    no_wait: Bit = False


@method(50, 31)
@dataclass(frozen=True, slots=True)
class QueuePurgeOk(AmqpMethod):
    """How many there were."""

    message_count: Long = 0


@method(50, 40)
@dataclass(frozen=True, slots=True)
class QueueDelete(AmqpMethod):
    """Remove a queue."""

    ticket: Short = 0
    queue: ShortText = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@method(50, 41)
@dataclass(frozen=True, slots=True)
class QueueDeleteOk(AmqpMethod):
    """How many messages it had."""

    message_count: Long = 0


@method(50, 50)
@dataclass(frozen=True, slots=True)
class QueueUnbind(AmqpMethod):
    """The opposite of a binding."""

    ticket: Short = 0
    queue: ShortText = ""
    exchange: ShortText = ""
    routing_key: ShortText = ""
    arguments: Table = field(default_factory=dict)


@method(50, 51)
@dataclass(frozen=True, slots=True)
class QueueUnbindOk(AmqpMethod):
    """The answer."""
