"""Declared exchanges, queues and bindings, as values and as records of the state topic.

A record's key is `VHOST/exchange/NAME`, `VHOST/queue/NAME` or `VHOST/binding/HASH`, names percent-encoded; its value is
JSON, in which arguments are the base64 of their field table, so that no type is lost.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from millstream.model.routing.routes import DROP, REJECT
from millstream.protocol.amqp.field_table import FieldTable, decode_table, encode_table

__all__ = [
    "ALTERNATE_EXCHANGE",
    "DEFAULT_EXCHANGE",
    "DELAYED_TYPE",
    "EXCHANGE_TYPES",
    "AmqpQueue",
    "Declared",
    "DeclaredBinding",
    "Exchange",
    "decode_declared",
    "encode_declared",
    "key_of",
]

DEFAULT_EXCHANGE: Final = ""
"""The exchange without a name: every queue is bound to it by its own name."""

DELAYED_TYPE: Final = "x-delayed-message"
"""The type of exchanges whose messages may come later; its argument `x-delayed-type` says how they are routed."""

EXCHANGE_TYPES: Final = frozenset({"direct", "topic", "fanout", "headers", DELAYED_TYPE})

ALTERNATE_EXCHANGE: Final = "alternate-exchange"

_TIMED: Final = ("x-message-ttl", "x-expires", "x-dead-letter-exchange")
_HASH_BYTES: Final = 20


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange. `kind` is one of `EXCHANGE_TYPES`."""

    name: str
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: FieldTable = field(default_factory=dict)

    @property
    def routes_as(self) -> str:
        """How messages are routed: direct, topic, fanout or headers."""
        return str(self.arguments.get("x-delayed-type", "direct")) if self.kind == DELAYED_TYPE else self.kind

    @property
    def alternate(self) -> str | None:
        """The exchange that gets what no binding of this one takes."""
        name = self.arguments.get(ALTERNATE_EXCHANGE)
        return name if isinstance(name, str) else None


@dataclass(frozen=True, slots=True)
class AmqpQueue:
    """A queue. `owner` is the connection that alone may use an exclusive one; blank for all others."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    owner: str = ""
    arguments: FieldTable = field(default_factory=dict)

    @property
    def is_exclusive(self) -> bool:
        """Whether one connection alone may use it."""
        return bool(self.owner)

    @property
    def is_transient(self) -> bool:
        """Whether it lives no longer than its users: its messages need no topic of their own."""
        return bool(self.owner) or self.auto_delete

    @property
    def message_ttl_ms(self) -> int | None:
        """How long a message waits here at most."""
        return self._number("x-message-ttl")

    @property
    def expires_ms(self) -> int | None:
        """After how long without use the queue goes."""
        return self._number("x-expires")

    @property
    def has_time_limit(self) -> bool:
        """Whether its messages, or it itself, may have to go although nobody asks: their dead-letter exchange waits."""
        return any(self.arguments.get(name) is not None for name in _TIMED)

    @property
    def max_length(self) -> int | None:
        """Messages that are ready at most."""
        return self._number("x-max-length")

    @property
    def max_length_bytes(self) -> int | None:
        """Bytes of the bodies of these messages at most."""
        return self._number("x-max-length-bytes")

    @property
    def is_bounded(self) -> bool:
        """Whether it has one of these limits."""
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def kept_length(self) -> tuple[int, str] | None:
        """The limit that brokers keep, whoever sends, and how. What goes to a dead-letter exchange, and bytes, are the
        proxies' to count."""
        length = self.max_length
        if length is None:
            return None
        if self.refuses_overflow:
            return length, REJECT
        return (length, DROP) if self.dead_letter_exchange is None else None

    @property
    def drops_oldest(self) -> bool:
        """Whether its oldest messages go where it has too many."""
        return self.is_bounded and not self.refuses_overflow

    @property
    def max_priority(self) -> int:
        """The highest priority that is distinguished from the others; 0 for a queue without priorities."""
        return self._number("x-max-priority") or 0

    @property
    def delivery_limit(self) -> int | None:
        """How often a message is delivered again at most."""
        return self._number("x-delivery-limit")

    @property
    def refuses_overflow(self) -> bool:
        """Whether a full queue refuses new messages; others drop their oldest one."""
        return self._text("x-overflow") in ("reject-publish", "reject-publish-dlx")

    @property
    def has_single_consumer(self) -> bool:
        """Whether one consumer at a time gets messages."""
        return self.arguments.get("x-single-active-consumer") is True

    @property
    def dead_letter_exchange(self) -> str | None:
        """Where dead messages go."""
        return self._text("x-dead-letter-exchange")

    @property
    def dead_letter_key(self) -> str | None:
        """Their routing key; None keeps what they had."""
        return self._text("x-dead-letter-routing-key")

    def _number(self, name: str) -> int | None:
        value = self.arguments.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _text(self, name: str) -> str | None:
        value = self.arguments.get(name)
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class DeclaredBinding:
    """What a queue, or with `to_exchange` an exchange, gets of the exchange `source`."""

    source: str
    destination: str
    routing_key: str = ""
    arguments: FieldTable = field(default_factory=dict)
    to_exchange: bool = False

    @property
    def identity(self) -> str:
        """Equal for bindings that are the same one."""
        hashed = blake2b(digest_size=_HASH_BYTES)
        parts = (
            self.source.encode(),
            self.destination.encode(),
            self.routing_key.encode(),
            encode_table(self.arguments),
        )
        for part in (*parts, b"e" if self.to_exchange else b"q"):
            hashed.update(len(part).to_bytes(4) + part)
        return hashed.hexdigest()


Declared: TypeAlias = Exchange | AmqpQueue | DeclaredBinding

_KINDS: Final[dict[type[Declared], str]] = {Exchange: "exchange", AmqpQueue: "queue", DeclaredBinding: "binding"}


def key_of(virtual_host: str, declared: Declared) -> str:
    """The key of the record."""
    name = declared.identity if isinstance(declared, DeclaredBinding) else declared.name
    return f"{quote(virtual_host, safe='')}/{_KINDS[type(declared)]}/{quote(name, safe='')}"


def encode_declared(declared: Declared) -> bytes:
    """The value of the record."""
    arguments = base64.b64encode(encode_table(declared.arguments)).decode()
    values: dict[str, object] = {"arguments": arguments}
    if isinstance(declared, DeclaredBinding):
        values |= {"source": declared.source, "destination": declared.destination, "key": declared.routing_key}
        values["to_exchange"] = declared.to_exchange
    else:
        values |= {"name": declared.name, "durable": declared.durable, "auto_delete": declared.auto_delete}
        if isinstance(declared, Exchange):
            values |= {"type": declared.kind, "internal": declared.internal}
        else:
            values["owner"] = declared.owner
    return json.dumps(values).encode()


def decode_declared(key: str, value: bytes) -> tuple[str, Declared]:
    """The virtual host and what is declared there. ValueError for a record that is none of these."""
    host, kind, _ = key.split("/")
    values = json.loads(value)
    arguments, _ = decode_table(base64.b64decode(values["arguments"]))
    declared: Declared
    if kind == "binding":
        source, destination = values["source"], values["destination"]
        declared = DeclaredBinding(source, destination, values["key"], arguments, values["to_exchange"])
    elif kind == "queue":
        declared = AmqpQueue(values["name"], values["durable"], values["auto_delete"], values["owner"], arguments)
    elif kind == "exchange":
        flags = (values["durable"], values["auto_delete"], values["internal"])
        declared = Exchange(values["name"], values["type"], *flags, arguments)
    else:
        raise ValueError(f"The record {key!r} is neither of an exchange, a queue nor a binding.")
    return unquote(host), declared
