"""The routing records that brokers need for the queues of a virtual host. Pure.

A queue gets messages of each exchange that it is bound to, and of those that are bound to that one: a message is stored
once, in the topic of the exchange it was published to, so every such chain of bindings is a binding of the queue to
the first exchange. Where one binding of a chain lets everything through, the others are enough; where two of them
choose, the record names the further ones in `also`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from millstream.proxy.amqp.declarations import DEFAULT_EXCHANGE, AmqpQueue, DeclaredBinding, Exchange
from millstream.proxy.amqp.names import group_of_queue, light_name_of_queue, topic_of_exchange, topic_of_queue
from millstream.proxy.amqp.stored_content import header_text
from millstream.proxy.amqp.virtual_host import VirtualHost

__all__ = ["MAX_CHAIN", "binding_records", "queue_record"]

MAX_CHAIN: Final = 8
"""Exchanges on the way of a message to a queue at most; longer ways do not count."""

_ID_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class _Step:
    """An exchange, and the binding by which a message leaves it."""

    exchange: Exchange
    binding: DeclaredBinding

    @property
    def lets_all_through(self) -> bool:
        """Whether every message of the exchange fits."""
        kind = self.exchange.routes_as
        return kind == "fanout" or (kind == "topic" and self.binding.routing_key == "#")

    def condition(self) -> dict[str, Any]:
        """What a message must fit."""
        kind = self.exchange.routes_as
        wanted: dict[str, Any] = {"type": kind, "key": self.binding.routing_key}
        if kind == "headers":
            arguments = self.binding.arguments.items()
            wanted["arguments"] = {name: header_text(value) for name, value in arguments}
        return wanted


def queue_record(host: VirtualHost, queue: AmqpQueue) -> tuple[str, bytes]:
    """The record that makes the light queue of a queue."""
    value: dict[str, Any] = {"kind": "amqp", "group": group_of_queue(host.name, queue.name)}
    if queue.kept_length is not None:
        value["max_length"], value["overflow"] = queue.kept_length
    return f"queue/{light_name_of_queue(host.name, queue.name)}", json.dumps(value).encode()


def binding_records(host: VirtualHost, queue: AmqpQueue) -> dict[str, bytes]:
    """The records of all that a queue is bound to, the default exchange first."""
    own = {"type": "direct", "exchange": DEFAULT_EXCHANGE, "key": queue.name}
    light_name = light_name_of_queue(host.name, queue.name)
    records = dict([_record(light_name, topic_of_queue(host.name, queue), own)])
    for chain in _chains(host, queue.name):
        choosing = [step for step in chain if not step.lets_all_through] or chain[:1]
        first, *others = [step.condition() for step in choosing]
        condition = {**first, "exchange": chain[0].exchange.name}
        if others:
            condition["also"] = others
        records.update([_record(light_name, topic_of_exchange(host.name, chain[0].exchange.name), condition)])
    return records


def _chains(host: VirtualHost, queue: str) -> Iterator[tuple[_Step, ...]]:
    """The ways to a queue, each from the exchange that a message is published to; circles are left."""
    waiting: list[tuple[_Step, ...]] = [(step,) for step in _steps(host, host.bindings_to(queue))]
    while waiting:
        chain = waiting.pop()
        yield chain
        seen = {step.exchange.name for step in chain}
        if len(chain) == MAX_CHAIN:
            continue
        before = _steps(host, host.bindings_to(chain[0].exchange.name, to_exchange=True))
        waiting += [(step, *chain) for step in before if step.exchange.name not in seen]


def _steps(host: VirtualHost, bindings: list[DeclaredBinding]) -> list[_Step]:
    """The bindings with their exchanges, where these are known already."""
    return [_Step(host.exchanges[one.source], one) for one in bindings if one.source in host.exchanges]


def _record(light_name: str, topic: str, condition: dict[str, Any]) -> tuple[str, bytes]:
    value = json.dumps({"topic": topic, "amqp": condition}, sort_keys=True).encode()
    return f"bind/{light_name}/{blake2b(value, digest_size=_ID_BYTES).hexdigest()}", value
