"""X sends and Y receives, for every pair of HTTP, gRPC, remoting, MQTT, AMQP and SQL: every field with a place comes,
at first, when it is delivered again, and after a dead letter was sent again. What a protocol has no field for comes as
a property. Which delivery it is every protocol says in its own way."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any, Final

import pytest

pytest.importorskip("pika", reason="the package pika is not installed: no client of AMQP")

from protocol_pairs import BODIES, EVENT, ROUNDS, SQL_ROUNDS, TRACE, Arrivals, Seen, exchange_messages

_OWN_EVENT: Final = {f"event {name}": value for name, value in EVENT.items()}
_JSON: Final = "application/json"

STORED: Final[dict[str, Seen]] = {
    "grpc": {"key": "k1 k2", "tag": "red", "user colour": "blue", "user Level": "3", "trace": TRACE},
    "remoting": {"key": "k1", "tag": "red", "group": "g1", "user colour": "blue", "user Level": "3"},
    "http": {
        "key": "k1",
        "tag": "red",
        "group": "g1",
        "user colour": "blue",
        "user content_type": "text/plain",
        "trace": TRACE,
    },
    "http-event": {
        "key": "A1",
        "tag": "red",
        "group": "g1",
        "trace": TRACE,
        "user CE_expirytime": "2999-01-01T00:00:00Z",
    },
    "mqtt": {
        "key": "orders/red",
        "user mqtt_topic": "orders/red",
        "user mqtt_content_type": "text/plain",
        "user mqtt_correlation": "YzE=",
        "user mqtt_response_topic": "answers/1",
        "user colour": "green",
        "user odd": "|7C41|02",
        "trace": TRACE,
    },
    "mqtt-event": {"key": "orders/red", "user mqtt_content_type": _JSON},
    "amqp": {
        "key": "k1",
        "tag": "red",
        "user content_type": "text/plain",
        "user amqp_correlation": "c1",
        "user reply_to": "answers/1",
        "user amqp_priority": "4",
        "user colour": "blue",
        "trace": TRACE,
    },
    "amqp-event": {"key": "A1", "tag": "red", "user content_type": _JSON},
    "sql": {"key": "k1", "tag": "red", "user colour": "blue", "user content_type": "text/plain"},
}
"""What clients of RocketMQ find of each sender's message; what they have no field for are properties."""

for _sender in ("http-event", "mqtt-event", "amqp-event"):
    STORED[_sender] |= {f"user CE_{name}": value for name, value in EVENT.items()}

_IN_MQTT: Final[dict[str, Seen]] = {
    "grpc": {"user KEYS": "k1 k2", "user TAGS": "red", "user colour": "blue", "user traceparent": TRACE},
    "remoting": {"user KEYS": "k1", "user TAGS": "red", "user __SHARDINGKEY": "g1", "user Level": "3"},
    "http": {"user KEYS": "k1", "content type": "text/plain", "user colour": "blue", "user traceparent": TRACE},
    "http-event": {
        "content type": _JSON,
        "expires": "yes",
        "user partitionkey": "g1",
        **{f"user {name}": value for name, value in EVENT.items()},
    },
    "mqtt": {
        "content type": "text/plain",
        "correlation": "c1",
        "reply to": "answers/1",
        "expires": "yes",
        "users": json.dumps(
            [("colour", "blue"), ("odd", "|41\x02"), ("colour", "green"), ("KEYS", "mine"), ("traceparent", TRACE)]
        ),
    },
    "mqtt-event": {"content type": _JSON, "users": json.dumps([*EVENT.items()])},
    "amqp": {
        "user KEYS": "k1",
        "user amqp_rk": "red",
        "content type": "text/plain",
        "correlation": "c1",
        "reply to": "answers/1",
        "expires": "yes",
        "user colour": "blue",
        "user amqp_priority": "4",
        "user traceparent": TRACE,
    },
    "amqp-event": {"content type": _JSON, **{f"user {name}": value for name, value in EVENT.items()}},
    "sql": {
        "user KEYS": "k1",
        "user colour": "blue",
        "content type": "text/plain",
        "correlation": "c1",
        "reply to": "answers/1",
    },
}

_IN_AMQP: Final[dict[str, Seen]] = {
    "grpc": {"key": "k1 k2", "user colour": "blue", "user Level": "3", "user traceparent": TRACE},
    "remoting": {"key": "k1", "user __SHARDINGKEY": "g1", "user colour": "blue"},
    "http": {"key": "k1", "content type": "text/plain", "user colour": "blue", "user traceparent": TRACE},
    "http-event": {
        "key": "A1",
        "content type": _JSON,
        "expires": "yes",
        **{f"user cloudEvents:{name}": value for name, value in EVENT.items()},
    },
    "mqtt": {
        "key": "orders/red",
        "tag": "orders.red",
        "content type": "text/plain",
        "correlation": "c1",
        "reply to": "answers/1",
        "expires": "yes",
        "user colour": "green",
        "user odd": "|41\x02",
        "user mqtt_topic": "orders/red",
    },
    "mqtt-event": {
        "tag": "orders.red",
        "content type": _JSON,
        **{f"user cloudEvents:{name}": value for name, value in EVENT.items()},
    },
    "amqp": {
        "key": "k1",
        "content type": "text/plain",
        "correlation": "c1",
        "reply to": "answers/1",
        "expires": "yes",
        "priority": "4",
        "user colour": "blue",
        "user table": "{'a': 1}",
    },
    "amqp-event": {
        "content type": _JSON,
        **{f"user cloudEvents:{name}": value for name, value in EVENT.items()},
    },
    "sql": {
        "key": "k1",
        "content type": "text/plain",
        "correlation": "c1",
        "reply to": "answers/1",
        "user colour": "blue",
    },
}

_IN_HTTP: Final[dict[str, Seen]] = {
    "grpc": {
        "event subject": "k1",
        "event type": "red",
        "event colour": "blue",
        "user Level": "3",
        "user KEYS": "k1 k2",
        "event traceparent": TRACE,
    },
    "remoting": {"event subject": "k1", "event type": "red", "event partitionkey": "g1", "event colour": "blue"},
    "http": {
        "event subject": "k1",
        "event type": "red",
        "event partitionkey": "g1",
        "event colour": "blue",
        "event datacontenttype": "text/plain",
        "event traceparent": TRACE,
    },
    "http-event": {
        **_OWN_EVENT,
        "event datacontenttype": _JSON,
        "event expirytime": "2999-01-01T00:00:00Z",
        "event partitionkey": "g1",
    },
    "mqtt": {
        "event subject": "orders/red",
        "event datacontenttype": "text/plain",
        "event colour": "green",
        "user mqtt_response_topic": "answers/1",
        "user mqtt_correlation": "YzE=",
        "event traceparent": TRACE,
    },
    "mqtt-event": {**_OWN_EVENT, "event datacontenttype": _JSON},
    "amqp": {
        "event subject": "k1",
        "event type": "red",
        "event datacontenttype": "text/plain",
        "event colour": "blue",
        "user reply_to": "answers/1",
        "user amqp_correlation": "c1",
        "event traceparent": TRACE,
    },
    "amqp-event": {**_OWN_EVENT, "event datacontenttype": _JSON},
    "sql": {
        "event subject": "k1",
        "event type": "red",
        "event datacontenttype": "text/plain",
        "event colour": "blue",
    },
}

for _sender, _told in _IN_AMQP.items():
    _told.setdefault("tag", "red")
    _told["exchange"] = "orders"
for _sender, _told in _IN_MQTT.items():
    _told["topic"] = "orders/red"

EXPECTED: Final[dict[str, dict[str, Seen]]] = {
    "grpc": STORED,
    "remoting": STORED,
    "mqtt": _IN_MQTT,
    "amqp": _IN_AMQP,
    "http": _IN_HTTP,
    "sql": {
        sender: {name: value for name, value in told.items() if name not in ("group", "trace")}
        for sender, told in STORED.items()
    },
}

ATTEMPTS: Final[dict[str, tuple[str, str, str]]] = {
    "grpc": ("attempt", "1", "2"),
    "http": ("attempt", "1", "2"),
    "remoting": ("reconsume times", "0", "1"),
    "mqtt": ("dup", "False", "True"),
    "amqp": ("redelivered", "False", "True"),
}
"""By which word each protocol says which delivery it is, and what it says of the first and of the second."""

PAIRS: Final = [pair for pair in product(BODIES, EXPECTED) if "sql" not in pair]
SQL_PAIRS: Final = [pair for pair in product(BODIES, EXPECTED) if "sql" in pair]


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def arrivals(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Arrivals:
    """On the standard loop, and on the one that servers take where it is installed."""
    loops: Any = asyncio if request.param == "asyncio" else pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        return runner.run(exchange_messages(tmp_path_factory.mktemp("pairs"), with_sql=False))


@pytest.fixture(scope="module")
def arrivals_with_sql(tmp_path_factory: pytest.TempPathFactory) -> Arrivals:
    return asyncio.run(exchange_messages(tmp_path_factory.mktemp("pairs"), with_sql=True))


def check_pair(arrivals: Arrivals, sender: str, receiver: str) -> None:
    """Every round brought the body and all that is expected of the pair."""
    rounds = arrivals.seen[receiver, sender]
    names = SQL_ROUNDS if receiver == "sql" else ROUNDS
    assert len(rounds) == len(names)
    for name, seen in zip(names, rounds, strict=True):
        expected = {"body": BODIES[sender].decode(), **EXPECTED[receiver][sender]}
        if receiver in ATTEMPTS:
            word, first, second = ATTEMPTS[receiver]
            expected[word] = second if name == "delivered again" else first
        assert {field: seen.get(field) for field in expected} == expected, name


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_every_field_that_has_a_place_comes_from_one_protocol_to_the_other(
    arrivals: Arrivals, sender: str, receiver: str
) -> None:
    check_pair(arrivals, sender, receiver)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("sender", "receiver"), SQL_PAIRS)
def test_every_field_that_has_a_place_comes_from_sql_and_to_it(
    arrivals_with_sql: Arrivals, sender: str, receiver: str
) -> None:
    check_pair(arrivals_with_sql, sender, receiver)
