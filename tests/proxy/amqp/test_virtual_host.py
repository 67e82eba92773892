"""Declarations of one virtual host, and the routes that brokers get of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.routing.routes import place_in_amqp
from millstream.model.routing.routing_table import RoutingTable
from millstream.protocol.amqp.field_table import Timestamp
from millstream.protocol.amqp.reply_codes import ChannelFailure
from millstream.protocol.amqp.topology_methods import ExchangeDeclare, QueueDeclare
from millstream.protocol.route_records import decode_route
from millstream.proxy.amqp.declarations import (
    AmqpQueue,
    Declared,
    DeclaredBinding,
    Exchange,
    decode_declared,
    encode_declared,
    key_of,
)
from millstream.proxy.amqp.names import light_name_of_queue, topic_of_exchange
from millstream.proxy.amqp.route_records import MAX_CHAIN, binding_records, queue_record
from millstream.proxy.amqp.stored_content import routing_of
from millstream.proxy.amqp.virtual_host import VirtualHost

ARGUMENTS: dict[str, Any] = {
    "text": "é",
    "number": 5,
    "time": Timestamp(7),
    "table": {"list": [1, None]},
    "raw": b"\xff",
}


@pytest.mark.parametrize(
    "declared",
    [
        Exchange("e/ é", "topic", False, True, True, ARGUMENTS),
        AmqpQueue("q/ é", False, True, "proxy:1", ARGUMENTS),
        DeclaredBinding("e", "q", "a.*", ARGUMENTS),
        DeclaredBinding("e", "f", "", {}, to_exchange=True),
    ],
)
def test_a_declaration_comes_back_from_its_record(declared: Declared) -> None:
    key = key_of("team/ 1", declared)
    assert " " not in key
    assert key.isascii()
    assert decode_declared(key, encode_declared(declared)) == ("team/ 1", declared)


def code_of(call: Any) -> int:
    with pytest.raises(ChannelFailure) as error:
        call()
    return int(error.value.code)


def test_an_exclusive_queue_is_its_connections_alone() -> None:
    host = VirtualHost("/")
    queue = host.declare_queue(QueueDeclare(queue="q", exclusive=True), "q", "mine")
    assert queue is not None
    host.put(queue)
    assert host.declare_queue(QueueDeclare(queue="q", exclusive=True), "q", "mine") is None
    assert code_of(lambda: host.declare_queue(QueueDeclare(queue="q", exclusive=True), "q", "other")) == 405
    assert code_of(lambda: host.delete_queue("q", "other")) == 405
    assert code_of(lambda: host.bind(DeclaredBinding("amq.topic", "q"), "other")) == 405


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": -1},
        {"x-message-ttl": True},
        {"x-expires": 0},
        {"x-max-length": "many"},
        {"x-overflow": "panic"},
        {"x-max-priority": 256},
        {"x-queue-type": "stream"},
        {"x-dead-letter-exchange": 5},
        {"x-dead-letter-routing-key": "k"},
        {"x-single-active-consumer": 1},
        {"x-delivery-limit": -1},
    ],
)
def test_arguments_without_meaning_are_refused(arguments: dict[str, Any]) -> None:
    host = VirtualHost("/")
    assert code_of(lambda: host.declare_queue(QueueDeclare(queue="q", arguments=arguments), "q", "c")) == 406


def test_a_headers_binding_needs_a_known_x_match() -> None:
    host = VirtualHost("/")
    host.put(AmqpQueue("q"))
    wrong: list[Any] = ["some", 5, ["all"]]
    for value in wrong:
        assert (
            code_of(lambda value=value: host.bind(DeclaredBinding("amq.headers", "q", "", {"x-match": value}), "c"))
            == 406
        )


def test_an_exchange_in_use_goes_with_its_bindings_or_not_at_all() -> None:
    host = VirtualHost("/")
    wish = ExchangeDeclare(exchange="e", kind="fanout")
    exchange = host.declare_exchange(wish)
    assert exchange is not None
    binding = DeclaredBinding("e", "q")
    for declared in (exchange, AmqpQueue("q"), binding):
        host.put(declared)
    assert code_of(lambda: host.delete_exchange("e", if_unused=True)) == 406
    assert host.delete_exchange("e", if_unused=False) == [binding, exchange]
    assert host.delete_exchange("never", if_unused=False) == []


def test_two_bindings_that_differ_in_idle_arguments_end_each_for_itself() -> None:
    host = VirtualHost("/")
    host.put(AmqpQueue("q"))
    one, two = DeclaredBinding("amq.direct", "q", "k"), DeclaredBinding("amq.direct", "q", "k", {"note": "two"})
    host.put(one)
    host.put(two)
    host.remove("binding", one.identity)
    assert host.route("amq.direct", "k", {}) == {"q"}
    host.remove("binding", two.identity)
    assert host.route("amq.direct", "k", {}) == set()


def test_circles_of_exchanges_end() -> None:
    host = VirtualHost("/")
    for name in ("a", "b"):
        host.put(Exchange(name, "fanout", arguments={"alternate-exchange": "b" if name == "a" else "a"}))
    host.put(AmqpQueue("q"))
    for binding in (DeclaredBinding("a", "b", to_exchange=True), DeclaredBinding("b", "a", to_exchange=True)):
        host.put(binding)
    assert host.route("a", "", {}) == set()
    assert host.find_taker("a", "", {}) is None
    host.put(DeclaredBinding("a", "q"))
    assert host.route("b", "", {}) == {"q"}
    assert len(binding_records(host, host.queues["q"])) == 3


EXCHANGES = ("x", "y", "z")
KEYS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=3).map(".".join)
BINDINGS = st.tuples(
    st.sampled_from(EXCHANGES), st.booleans(), st.sampled_from(EXCHANGES), st.sampled_from(("q", "r")), PATTERNS
)


@given(
    st.tuples(*[st.sampled_from(["direct", "topic", "fanout", "headers"])] * 3),
    st.lists(BINDINGS, max_size=8),
    KEYS,
    st.dictionaries(st.sampled_from(["h", "i"]), st.sampled_from(["1", "2"]), max_size=2),
)
def test_brokers_route_as_the_exchanges_say(
    kinds: tuple[str, ...], bindings: list[tuple[str, bool, str, str, str]], key: str, headers: dict[str, str]
) -> None:
    host = VirtualHost("/")
    for name, kind in zip(EXCHANGES, kinds, strict=True):
        host.put(Exchange(name, kind))
    host.put(AmqpQueue("q"))
    host.put(AmqpQueue("r"))
    for source, to_exchange, exchange, queue, pattern in bindings:
        arguments = {"h": "1"} if len(pattern) % 2 else {"x-match": "any", "h": "1", "i": "2"}
        destination = exchange if to_exchange else queue
        host.put(DeclaredBinding(source, destination, pattern, arguments, to_exchange))
    table = RoutingTable()
    for queue in host.queues.values():
        for record_key, value in [queue_record(host, queue), *binding_records(host, queue).items()]:
            route = decode_route(record_key, value)
            if route.binding_id is None:
                table.declare(route.name, route.value)  # type: ignore[arg-type]
            else:
                table.bind(route.name, route.binding_id, route.value)  # type: ignore[arg-type]
    for exchange in EXCHANGES:
        held = {**headers, **routing_of(exchange, key)}
        assert place_in_amqp(exchange, held) == (exchange, key)
        found = set(table.match(topic_of_exchange("/", exchange), held))
        assert found == {f"%LMQ%{light_name_of_queue('/', name)}" for name in host.route(exchange, key, headers)}


def test_ways_over_too_many_exchanges_do_not_count() -> None:
    host = VirtualHost("/")
    host.put(AmqpQueue("q"))
    for number in range(MAX_CHAIN + 2):
        host.put(Exchange(f"e{number}", "fanout"))
    for number in range(MAX_CHAIN + 1):
        host.put(DeclaredBinding(f"e{number + 1}", f"e{number}", to_exchange=True))
    host.put(DeclaredBinding("e0", "q"))
    topics = {json.loads(value)["topic"] for value in binding_records(host, host.queues["q"]).values()}
    assert topics == {"q", *(f"e{number}" for number in range(MAX_CHAIN))}
