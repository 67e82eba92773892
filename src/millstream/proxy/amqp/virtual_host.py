"""The exchanges, queues and bindings of one virtual host, and the rules for changing them. Pure.

Changes are asked for here and take effect by `put` and `remove` once they are stored: every proxy sees the same ones in
the same order. The words of refusals follow RabbitMQ's, because clients' logs and tests look for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Final, NoReturn, TypeVar

from millstream.model.routing.amqp_bindings import AmqpBinding, AmqpBindings
from millstream.protocol.amqp.field_table import FieldTable
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode
from millstream.protocol.amqp.topology_methods import ExchangeDeclare, QueueDeclare
from millstream.proxy.amqp.declarations import (
    DEFAULT_EXCHANGE,
    DELAYED_TYPE,
    EXCHANGE_TYPES,
    AmqpQueue,
    Declared,
    DeclaredBinding,
    Exchange,
)
from millstream.proxy.amqp.names import topic_of_exchange, topic_of_queue
from millstream.proxy.amqp.queue_arguments import check_queue_arguments
from millstream.proxy.amqp.stored_content import header_text

__all__ = ["MAX_BINDINGS", "MAX_QUEUES_OF_HOST", "VirtualHost", "standard_exchanges"]

MAX_QUEUES_OF_HOST: Final = 100_000
"""Queues of a virtual host at most: each is a light queue of the brokers."""

MAX_BINDINGS: Final = 1_000_000
"""Bindings of a virtual host at most."""

_RESERVED: Final = "amq."


def standard_exchanges() -> dict[str, Exchange]:
    """The exchanges that every virtual host has (specification, 3.1.3)."""
    kinds = {"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.headers": "headers"}
    kinds["amq.match"] = "headers"
    return {name: Exchange(name, kind) for name, kind in {DEFAULT_EXCHANGE: "direct", **kinds}.items()}


class VirtualHost:
    """One virtual host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.exchanges = standard_exchanges()
        self.queues: dict[str, AmqpQueue] = {}
        self.limited: dict[str, AmqpQueue] = {}
        """The queues whose messages, or who themselves, go after a time."""
        self.bounded: dict[str, AmqpQueue] = {}
        """The queues that hold so many messages, or bytes of them, at most."""
        self.exclusive: defaultdict[str, dict[str, AmqpQueue]] = defaultdict(dict)
        """The exclusive queues by their connections."""
        self._bindings: dict[str, DeclaredBinding] = {}
        self._by_source: defaultdict[str, dict[str, DeclaredBinding]] = defaultdict(dict)
        self._by_destination: defaultdict[tuple[bool, str], dict[str, DeclaredBinding]] = defaultdict(dict)
        # Who gets a message of an exchange: queues, and (True) exchanges.
        self._matcher: AmqpBindings[tuple[bool, str]] = AmqpBindings()

    def __contains__(self, declared: Declared) -> bool:
        if isinstance(declared, DeclaredBinding):
            return declared.identity in self._bindings
        return declared.name in (self.exchanges if isinstance(declared, Exchange) else self.queues)

    def put(self, declared: Declared) -> None:
        """Something was declared."""
        if isinstance(declared, Exchange):
            self.exchanges[declared.name] = declared
        elif isinstance(declared, AmqpQueue):
            self.queues[declared.name] = declared
            if declared.owner:
                self.exclusive[declared.owner][declared.name] = declared
            if declared.has_time_limit or declared.drops_oldest:
                self.limited[declared.name] = declared
            if declared.is_bounded:
                self.bounded[declared.name] = declared
        else:
            identity = declared.identity
            self._bindings[identity] = declared
            self._by_source[declared.source][identity] = declared
            self._by_destination[declared.to_exchange, declared.destination][identity] = declared
            if declared.source in self.exchanges:
                self._matcher.add(self._pattern(declared), (declared.to_exchange, declared.destination))

    def remove(self, kind: str, name: str) -> None:
        """The record of an exchange, a queue or a binding (by its identity) is gone; nothing where there was none."""
        if kind == "exchange":
            self.exchanges.pop(name, None)
        elif kind == "queue":
            queue = self.queues.pop(name, None)
            if queue is not None and queue.owner:
                _drop(self.exclusive, queue.owner, name)
            self.limited.pop(name, None)
            self.bounded.pop(name, None)
        elif (binding := self._bindings.pop(name, None)) is not None:
            _drop(self._by_source, binding.source, name)
            _drop(self._by_destination, (binding.to_exchange, binding.destination), name)
            self._forget_pattern(binding)

    def clear(self) -> None:
        """Everything starts over."""
        self.__init__(self.name)  # type: ignore[misc]

    # what there is

    def exchange(self, name: str) -> Exchange:
        """NOT_FOUND where there is none of the name."""
        found = self.exchanges.get(name)
        if found is None:
            raise ChannelFailure(ReplyCode.NOT_FOUND, f"no exchange '{name}' in vhost '{self.name}'")
        return found

    def queue(self, name: str, connection: str) -> AmqpQueue:
        """NOT_FOUND where there is none of the name, RESOURCE_LOCKED where it is another connection's."""
        found = self.queues.get(name)
        if found is None:
            raise ChannelFailure(ReplyCode.NOT_FOUND, f"no queue '{name}' in vhost '{self.name}'")
        if found.owner not in ("", connection):
            raise ChannelFailure(
                ReplyCode.RESOURCE_LOCKED,
                f"cannot obtain exclusive access to locked queue '{name}' in vhost '{self.name}'. It could be "
                "originally declared on another connection or the exclusive property value does not match.",
            )
        return found

    def bindings_from(self, exchange: str) -> list[DeclaredBinding]:
        """What is bound to an exchange."""
        return list(self._by_source.get(exchange, {}).values())

    def bindings_to(self, destination: str, *, to_exchange: bool = False) -> list[DeclaredBinding]:
        """What a queue, or an exchange, is bound to."""
        return list(self._by_destination.get((to_exchange, destination), {}).values())

    def queues_of(self, connection: str) -> list[AmqpQueue]:
        """The exclusive queues of a connection."""
        return list(self.exclusive.get(connection, {}).values())

    def route(self, exchange: str, key: str, headers: FieldTable, further: Sequence[str] = ()) -> set[str]:
        """The queues that get a message by its routing key or one of the further ones."""
        if exchange == DEFAULT_EXCHANGE:
            return {key, *further} & self.queues.keys()
        texts = {name: text for name, value in headers.items() if (text := header_text(value)) is not None}
        found: set[str] = set()
        waiting, seen = [exchange], {exchange}
        while waiting:
            for to_exchange, name in self._matcher.match(waiting.pop(), key, texts, further):
                if not to_exchange:
                    found.add(name)
                elif name not in seen:
                    seen.add(name)
                    waiting.append(name)
        return found

    def find_taker(self, exchange: str, key: str, headers: FieldTable, further: Sequence[str] = ()) -> str | None:
        """The exchange whose queues get a message: the one it was sent to, or an alternate one; None if none does."""
        seen: set[str] = set()
        name: str | None = exchange
        while name is not None and name in self.exchanges and name not in seen:
            if self.route(name, key, headers, further):
                return name
            seen.add(name)
            name = self.exchanges[name].alternate
        return None

    def topics_of(self, exchange: str, keys: Iterable[str]) -> list[str]:
        """The topics in which a message for an exchange is stored: one, but for the default exchange one for each topic
        of the queues that the keys name; none where they name no queue."""
        if exchange != DEFAULT_EXCHANGE:
            return [topic_of_exchange(self.name, exchange)]
        queues = [self.queues[key] for key in keys if key in self.queues]
        return [*dict.fromkeys(topic_of_queue(self.name, queue) for queue in queues)]

    # what clients ask for

    def declare_exchange(self, wish: ExchangeDeclare) -> Exchange | None:
        """The exchange to be stored; None where it is there already, or `passive` asks only that. Refuses the rest."""
        if wish.passive:
            self.exchange(wish.exchange)
            return None
        known = self.exchanges.get(wish.exchange)
        if wish.exchange == DEFAULT_EXCHANGE:
            self._refuse_default()
        if known is None and wish.exchange.startswith(_RESERVED):
            self._refuse_reserved("exchange", wish.exchange)
        if wish.kind not in EXCHANGE_TYPES:
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, f"invalid exchange type '{wish.kind}'")
        if wish.kind == DELAYED_TYPE and wish.arguments.get("x-delayed-type", "direct") not in EXCHANGE_TYPES:
            words = f"invalid x-delayed-type {wish.arguments['x-delayed-type']!r} of exchange '{wish.exchange}'"
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
        wanted = Exchange(wish.exchange, wish.kind, wish.durable, wish.auto_delete, wish.internal, dict(wish.arguments))
        if known is None:
            return wanted
        self._refuse_unequal("exchange", known, wanted)
        return None

    def delete_exchange(self, name: str, *, if_unused: bool) -> list[Declared]:
        """What goes: the exchange and its bindings; nothing where there is none (RabbitMQ's rule)."""
        if name == DEFAULT_EXCHANGE:
            self._refuse_default()
        if name.startswith(_RESERVED):
            self._refuse_reserved("exchange", name)
        found = self.exchanges.get(name)
        if found is None:
            return []
        if if_unused and self._by_source.get(name):
            words = f"exchange '{name}' in vhost '{self.name}' in use"
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
        return [*self.bindings_from(name), *self.bindings_to(name, to_exchange=True), found]

    def declare_queue(self, wish: QueueDeclare, name: str, connection: str) -> AmqpQueue | None:
        """The queue to be stored under `name`; None where it is there already, or `passive` asks only that."""
        if wish.passive:
            self.queue(name, connection)
            return None
        known = self.queues.get(name)
        if known is None and wish.queue.startswith(_RESERVED):
            self._refuse_reserved("queue", name)
        check_queue_arguments(wish.arguments, f"queue '{name}' in vhost '{self.name}'")
        owner = connection if wish.exclusive else ""
        wanted = AmqpQueue(name, wish.durable, wish.auto_delete, owner, dict(wish.arguments))
        if known is None:
            if len(self.queues) >= MAX_QUEUES_OF_HOST:
                words = f"vhost '{self.name}' has {len(self.queues)} queues, which is the limit"
                raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
            return wanted
        self.queue(name, connection)
        self._refuse_unequal("queue", known, wanted)
        return None

    def delete_queue(self, name: str, connection: str) -> list[Declared]:
        """What goes: the queue and its bindings; nothing where there is none (RabbitMQ's rule)."""
        if name not in self.queues:
            return []
        queue = self.queue(name, connection)
        return [*self.bindings_to(name), queue]

    def bind(self, binding: DeclaredBinding, connection: str) -> DeclaredBinding | None:
        """The binding to be stored; None where it is there already. Refuses what does not exist."""
        self._check_ends(binding, connection)
        if binding in self:
            return None
        if len(self._bindings) >= MAX_BINDINGS:
            words = f"vhost '{self.name}' has {len(self._bindings)} bindings, which is the limit"
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
        return binding

    def unbind(self, binding: DeclaredBinding, connection: str) -> DeclaredBinding | None:
        """The binding that goes; None where there is none (RabbitMQ's rule)."""
        if DEFAULT_EXCHANGE in (binding.source, binding.destination if binding.to_exchange else None):
            self._refuse_default()
        if not binding.to_exchange and binding.destination in self.queues:
            self.queue(binding.destination, connection)
        return binding if binding in self else None

    def unused_exchanges(self, gone: list[DeclaredBinding]) -> Iterator[Exchange]:
        """The auto-delete exchanges that have no binding left once those are gone."""
        identities = {binding.identity for binding in gone}
        for name in dict.fromkeys(binding.source for binding in gone):
            exchange = self.exchanges.get(name)
            if exchange is not None and exchange.auto_delete and not self._by_source.get(name, {}).keys() - identities:
                yield exchange

    def _pattern(self, binding: DeclaredBinding) -> AmqpBinding:
        """A binding as the matcher has it."""
        kind = self.exchanges[binding.source].routes_as
        items = binding.arguments.items() if kind == "headers" else ()
        arguments = tuple((name, header_text(value)) for name, value in items)
        return AmqpBinding(kind, binding.source, binding.routing_key, arguments)

    def _forget_pattern(self, binding: DeclaredBinding) -> None:
        """Bindings that differ in arguments without meaning are one pattern; it goes with the last of them."""
        if binding.source not in self.exchanges:
            return
        pattern = self._pattern(binding)
        others = self.bindings_to(binding.destination, to_exchange=binding.to_exchange)
        if not any(one.source == binding.source and self._pattern(one) == pattern for one in others):
            self._matcher.remove(pattern, (binding.to_exchange, binding.destination))

    def _check_ends(self, binding: DeclaredBinding, connection: str) -> None:
        if DEFAULT_EXCHANGE in (binding.source, binding.destination if binding.to_exchange else None):
            self._refuse_default()
        if binding.to_exchange:
            self.exchange(binding.destination)
        else:
            self.queue(binding.destination, connection)
        self.exchange(binding.source)
        match = binding.arguments.get("x-match")
        if self.exchanges[binding.source].routes_as == "headers" and match not in _MATCHES:
            words = f"Invalid x-match field value {match!r}; expected all, any, all-with-x or any-with-x"
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)

    def _refuse_default(self) -> NoReturn:
        raise ChannelFailure(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")

    def _refuse_reserved(self, kind: str, name: str) -> NoReturn:
        words = f"{kind} name '{name}' contains reserved prefix 'amq.*'"
        raise ChannelFailure(ReplyCode.ACCESS_REFUSED, words)

    def _refuse_unequal(self, kind: str, known: Exchange | AmqpQueue, wanted: Exchange | AmqpQueue) -> None:
        for field in fields(known):
            if field.name == "arguments":
                continue
            before, now = getattr(known, field.name), getattr(wanted, field.name)
            if before != now:
                self._refuse_argument(kind, known.name, _WORDS.get(field.name, field.name), before, now)
        names = dict.fromkeys((*known.arguments, *wanted.arguments))
        for name in names if isinstance(known, AmqpQueue) else (name for name in names if name in _OF_EXCHANGES):
            before, now = known.arguments.get(name), wanted.arguments.get(name)
            if before != now:
                self._refuse_argument(kind, known.name, name, before, now)

    def _refuse_argument(self, kind: str, name: str, argument: str, before: object, now: object) -> NoReturn:
        raise ChannelFailure(
            ReplyCode.PRECONDITION_FAILED,
            f"inequivalent arg '{argument}' for {kind} '{name}' in vhost '{self.name}': received {_quote(now)} but "
            f"current is {_quote(before)}",
        )


_K = TypeVar("_K")
_V = TypeVar("_V")
_MATCHES: Final = (None, "all", "any", "all-with-x", "any-with-x")
_WORDS: Final = {"kind": "type", "owner": "exclusive"}
_OF_EXCHANGES: Final = ("alternate-exchange", "x-delayed-type")


def _quote(value: object) -> str:
    return "none" if value is None else f"'{str(value).lower() if isinstance(value, bool) else value}'"


def _drop(index: defaultdict[_K, dict[str, _V]], key: _K, name: str) -> None:
    held = index[key]
    held.pop(name, None)
    if not held:
        del index[key]
