"""The same pika scripts to RabbitMQ and to ours, where RabbitMQ is installed: what a client sees is the same, or the
difference has its reason here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from millstream.server.child import ServerProcess

pika = pytest.importorskip("pika", reason="pika is not installed")

from pika import BasicProperties, BlockingConnection, ConnectionParameters, exceptions  # noqa: E402

_DEBIAN: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The script itself: the one on the path asks for its own user."""

_RABBITMQ: Final = _DEBIAN if Path(_DEBIAN).is_file() else shutil.which("rabbitmq-server")
_START_S: Final = 90.0
_PATIENCE_S: Final = 20.0


class Site:
    """A broker, and what a script does there."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[Any] = []

    def channel(self, *, confirms: bool = False) -> Any:
        """A channel of a connection of its own."""
        connection = BlockingConnection(ConnectionParameters("127.0.0.1", self._port, heartbeat=0))
        self._connections.append(connection)
        channel = connection.channel()
        if confirms:
            channel.confirm_delivery()
        return channel

    def attempt(self, act: Callable[[Any], Any]) -> Any:
        """What an act on a channel of its own gives, or with which code and words it ends the channel or connection."""
        try:
            return _plain(act(self.channel()))
        except exceptions.ChannelClosedByBroker as error:
            return "channel", error.reply_code, _words(error.reply_text)
        except exceptions.ConnectionClosedByBroker as error:
            return "connection", error.reply_code, _words(error.reply_text)

    def close(self) -> None:
        for connection in self._connections:
            if connection.is_open:
                connection.close()


def _words(text: str) -> str:
    """The name of the code that an answer's words begin with: what follows is for people, and each broker's own."""
    return text.partition(" ")[0]


def _plain(found: Any) -> Any:
    method = getattr(found, "method", found)
    known = ("queue", "message_count", "consumer_count")
    held = {name: getattr(method, name) for name in known if hasattr(method, name)}
    return held or type(method).__name__


def _take(channel: Any, queue: str, count: int) -> list[Any]:
    """So many messages of a queue: body, key, redelivered, and the headers but for times."""
    found: list[Any] = []
    until_s = time.monotonic() + _PATIENCE_S
    while len(found) < count and time.monotonic() < until_s:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            channel.connection.sleep(0.02)
            continue
        found.append((body, method.exchange, method.routing_key, method.redelivered, _headers(properties)))
    return found


def _headers(properties: Any) -> Any:
    headers = dict(properties.headers or {})
    for one in headers.get("x-death", ()):
        del one["time"]
        one["count"] = int(one["count"])
    # RabbitMQ has the headers of the last death since 3.13.
    return sorted((name, _text(value)) for name, value in headers.items() if not name.startswith("x-last-death-"))


def _text(value: Any) -> str:
    """A value, its numbers without how many bytes they had."""
    return str([sorted(one.items()) for one in value]) if isinstance(value, list) else str(value)


def _bodies(channel: Any, queue: str, count: int) -> list[bytes]:
    return [one[0] for one in _take(channel, queue, count)]


def _all(channel: Any, queue: str) -> list[bytes]:
    """The bodies of all that a queue has."""
    return _bodies(channel, queue, channel.queue_declare(queue, passive=True).method.message_count)


def declarations(site: Site) -> list[Any]:
    site.channel().queue_declare("d1", durable=True)
    site.channel().exchange_declare("x1", "direct", durable=True)
    return [
        site.attempt(lambda one: one.queue_declare("d1", durable=True)),
        site.attempt(lambda one: one.queue_declare("d1", passive=True)),
        site.attempt(lambda one: one.queue_declare("d1", durable=False)),
        site.attempt(lambda one: one.queue_declare("d1", durable=True, arguments={"x-max-length": 5})),
        site.attempt(lambda one: one.queue_declare("missing", passive=True)),
        site.attempt(lambda one: one.exchange_declare("x1", "direct", durable=True)),
        site.attempt(lambda one: one.exchange_declare("x1", "topic", durable=True)),
        site.attempt(lambda one: one.exchange_declare("missing", passive=True)),
        site.attempt(lambda one: one.exchange_declare("amq.mine", "direct")),
        site.attempt(lambda one: one.queue_declare("amq.mine")),
        site.attempt(lambda one: one.exchange_declare("", "direct")),
        site.attempt(lambda one: one.exchange_delete("missing")),
        site.attempt(lambda one: one.queue_delete("missing")),
    ]


def bindings(site: Site) -> list[Any]:
    channel = site.channel()
    channel.queue_declare("b1")
    return [
        site.attempt(lambda one: one.queue_bind("b1", "amq.direct", "k")),
        site.attempt(lambda one: one.queue_bind("b1", "amq.direct", "k")),
        site.attempt(lambda one: one.queue_bind("b1", "missing", "k")),
        site.attempt(lambda one: one.queue_bind("missing", "amq.direct", "k")),
        site.attempt(lambda one: one.queue_unbind("b1", "amq.direct", "other")),
        site.attempt(lambda one: one.queue_bind("b1", "", "k")),
    ]


def deletions(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.queue_declare("del")
    channel.basic_publish("", "del", b"1")
    found = [site.attempt(lambda one: one.queue_delete("del", if_empty=True))]
    channel.basic_consume("del", lambda *_: None)
    found.append(site.attempt(lambda one: one.queue_delete("del", if_unused=True)))
    channel.exchange_declare("delx", "fanout")
    channel.queue_bind("del", "delx")
    found.append(site.attempt(lambda one: one.exchange_delete("delx", if_unused=True)))
    found.append(site.attempt(lambda one: one.exchange_delete("delx")))
    return found


def routing(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.exchange_declare("rt", "topic")
    patterns = ["a.b", "a.*", "*.b", "#", "a.#", "#.b", "*", "a.*.c", "", "#.b.#"]
    for number, pattern in enumerate(patterns):
        channel.queue_declare(f"rt{number}")
        channel.queue_bind(f"rt{number}", "rt", pattern)
    keys = ["a.b", "a", "a.b.c", "", "b", "x.y.b", "a..b", "a.x.c"]
    for key in keys:
        channel.basic_publish("rt", key, key.encode())
    counts = [
        channel.queue_declare(f"rt{number}", passive=True).method.message_count for number in range(len(patterns))
    ]
    return [(pattern, _bodies(channel, f"rt{number}", counts[number])) for number, pattern in enumerate(patterns)]


def headers_exchange(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.exchange_declare("hd", "headers")
    wanted: list[dict[str, Any]] = [
        {"x-match": "all", "a": 1, "b": "two"}, {"x-match": "any", "a": 1, "b": "two"}, {"a": 1}, {},
        {"x-match": "any"},
    ]  # fmt: skip
    for number, arguments in enumerate(wanted):
        channel.queue_declare(f"hd{number}")
        channel.queue_bind(f"hd{number}", "hd", "", arguments)
    for number, held in enumerate([{"a": 1, "b": "two"}, {"a": 1}, {"b": "two", "c": 3}, {"a": "1"}, {}]):
        channel.basic_publish("hd", "", b"%d" % number, BasicProperties(headers=held))
    return [_all(channel, f"hd{number}") for number in range(len(wanted))]


def exchanges_of_exchanges(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.exchange_declare("alt", "fanout")
    channel.exchange_declare("main", "direct", arguments={"alternate-exchange": "alt"})
    channel.exchange_declare("inner", "direct")
    channel.exchange_bind("inner", "main", "k")
    for queue, exchange, key in (("e1", "inner", "k"), ("e2", "alt", ""), ("e3", "main", "k")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange, key)
    channel.basic_publish("main", "k", b"routed")
    channel.basic_publish("main", "other", b"alternate")
    counts = [channel.queue_declare(queue, passive=True).method.message_count for queue in ("e1", "e2", "e3")]
    return [*counts, _take(channel, "e1", 1), _take(channel, "e2", 1)]


def unroutable(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    found: list[Any] = []
    for exchange, key in (("", "nobody"), ("amq.direct", "nobody")):
        try:
            channel.basic_publish(exchange, key, b"x", BasicProperties(message_id="m"), mandatory=True)
            found.append("taken")
        except exceptions.UnroutableError as error:
            [one] = error.messages
            found.append(
                (one.method.reply_code, one.method.reply_text, one.method.exchange, one.method.routing_key, one.body)
            )
    channel.basic_publish("amq.direct", "nobody", b"dropped")

    def to_nowhere(one: Any) -> Any:
        one.confirm_delivery()
        return one.basic_publish("missing", "k", b"x")

    found.append(site.attempt(to_nowhere))
    return found


def getting_and_acknowledging(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.queue_declare("ga")
    found: list[Any] = [channel.basic_get("ga")[0] is None]
    for number in range(4):
        channel.basic_publish("", "ga", b"%d" % number)
    tags = []
    for _ in range(3):
        method, _properties, body = channel.basic_get("ga")
        tags.append(method.delivery_tag)
        found.append((method.message_count, method.redelivered, body))
    channel.basic_nack(tags[1], requeue=True)
    channel.basic_reject(tags[0], requeue=True)
    channel.basic_ack(tags[2])
    found.append(_take(channel, "ga", 3))
    found.append(site.attempt(lambda one: (one.basic_ack(99), one.queue_declare("ga", passive=True))[1]))
    found.append(site.attempt(lambda one: one.basic_get("missing")))
    return found


def dead_letters(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.queue_declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("dl", arguments=arguments)
    channel.queue_declare("dlt", arguments={**arguments, "x-message-ttl": 50})
    channel.queue_declare("dlm", arguments={**arguments, "x-max-length": 1})
    channel.basic_publish("", "dl", b"rejected", BasicProperties(headers={"own": "h"}))
    method, _, _ = channel.basic_get("dl")
    channel.basic_reject(method.delivery_tag, requeue=False)
    found: list[Any] = [_take(channel, "dead", 1)]
    channel.basic_publish("", "dlt", b"expired")
    found.append(_take(channel, "dead", 1))
    channel.basic_publish("", "dl", b"own expiry", BasicProperties(expiration="30"))
    found.append(_take(channel, "dead", 1))
    channel.basic_publish("", "dlm", b"first")
    channel.basic_publish("", "dlm", b"second")
    found.append(_take(channel, "dead", 1))
    found.append(_bodies(channel, "dlm", 1))
    return found


def full_queues(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.queue_declare("fd", arguments={"x-max-length": 2})
    channel.queue_declare("fr", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    found: list[Any] = []
    for queue in ("fd", "fr"):
        for number in range(4):
            try:
                channel.basic_publish("", queue, b"%d" % number)
                found.append("ack")
            except exceptions.NackError:
                found.append("nack")
        found.append(_bodies(channel, queue, 2))
    return found


def priorities(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.queue_declare("pr", arguments={"x-max-priority": 5})
    for priority in (0, 3, 1, 5, 9, None, 3):
        channel.basic_publish("", "pr", str(priority).encode(), BasicProperties(priority=priority))
    return _bodies(channel, "pr", 7)


def exclusive_queues(site: Site) -> list[Any]:
    channel = site.channel()
    channel.queue_declare("ex", exclusive=True)
    found = [
        site.attempt(lambda one: one.queue_declare("ex", exclusive=True)),
        site.attempt(lambda one: one.queue_declare("ex", passive=True)),
        site.attempt(lambda one: one.basic_get("ex")),
        site.attempt(lambda one: one.queue_delete("ex")),
    ]
    channel.queue_declare("one")
    channel.basic_consume("one", lambda *_: None, exclusive=True)
    found.append(site.attempt(lambda one: one.basic_consume("one", lambda *_: None)))
    return found


def properties_and_tables(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.queue_declare("pt")
    table = {
        "text": "t", "bytes": b"\x00\xff", "true": True, "small": 7, "large": 2**40, "none": None,
        "list": [1, "two", None], "table": {"inner": {"deep": 1}},
    }  # fmt: skip
    sent = BasicProperties(
        "text/plain",
        "utf-8",
        table,
        2,
        5,
        "corr",
        "reply",
        "60000",
        "id",
        1_700_000_000,
        "type",
        "guest",
        "app",
        "cluster",
    )
    channel.basic_publish("", "pt", b"body", sent)
    _, got, body = channel.basic_get("pt", auto_ack=True)
    names = (
        "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
        "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
    )  # fmt: skip
    return [body, [(name, getattr(got, name)) for name in names]]


def consumers(site: Site) -> list[Any]:
    channel = site.channel(confirms=True)
    channel.queue_declare("co")
    for number in range(5):
        channel.basic_publish("", "co", b"%d" % number)
    found: list[Any] = []
    got: list[bytes] = []
    reader = site.channel()
    reader.basic_qos(prefetch_count=2)
    reader.basic_consume("co", lambda _c, _m, _p, body: got.append(body), consumer_tag="tag")
    until_s = time.monotonic() + _PATIENCE_S
    while len(got) < 2 and time.monotonic() < until_s:
        reader.connection.process_data_events(0.05)
    reader.connection.process_data_events(0.3)
    found.append(list(got))
    found.append(_plain(channel.queue_declare("co", passive=True)))
    found.append(_plain(channel.queue_purge("co")))
    found.append(site.attempt(lambda one: (one.basic_consume("co", lambda *_: None, "t"), one.queue_delete("co"))[1]))
    return found


def wrong_values(site: Site) -> list[Any]:
    site.channel().queue_declare("wv")

    def publish(properties: Any) -> Callable[[Any], Any]:
        def act(one: Any) -> Any:
            one.confirm_delivery()
            return one.basic_publish("", "wv", b"x", properties)

        return act

    return [
        site.attempt(publish(BasicProperties(expiration="soon"))),
        site.attempt(publish(BasicProperties(user_id="somebody"))),
        site.attempt(lambda one: one.queue_declare("w1", arguments={"x-message-ttl": -1})),
        site.attempt(lambda one: one.queue_declare("w2", arguments={"x-max-length": "many"})),
        site.attempt(lambda one: one.queue_declare("w3", arguments={"x-expires": 0})),
        site.attempt(lambda one: one.queue_declare("w4", arguments={"x-dead-letter-routing-key": "k"})),
        site.attempt(lambda one: one.queue_declare("w5", arguments={"x-overflow": "sometimes"})),
        site.attempt(lambda one: one.exchange_declare("w6", "unknown")),
    ]


_SCRIPTS: Final = (
    declarations, bindings, deletions, routing, headers_exchange, exchanges_of_exchanges, unroutable,
    getting_and_acknowledging, dead_letters, full_queues, priorities, exclusive_queues, properties_and_tables,
    consumers, wrong_values,
)  # fmt: skip

_LOOSE: Final = "Header values are compared as text: those of other protocols are text, and one binding is for all."
_CHANNEL: Final = "An unknown type of exchange ends the channel, as other wrong declarations do, not the connection."

_REASONS: Final[dict[str, dict[int, str]]] = {
    "headers_exchange": {1: _LOOSE, 2: _LOOSE},
    "wrong_values": {7: _CHANNEL},
}
"""Why answers of a script are others, by their numbers: found and judged, not overlooked."""


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a RabbitMQ of its own."""
    if _RABBITMQ is None:
        pytest.skip("RabbitMQ is not installed: apt-get install rabbitmq-server")
    home = tmp_path_factory.mktemp("rabbitmq")
    with socket.socket() as free, socket.socket() as other:
        free.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, distribution = free.getsockname()[1], other.getsockname()[1]
    (home / "enabled").write_text("[].")
    environment = {
        **os.environ,
        "HOME": str(home),
        "RABBITMQ_NODENAME": f"interop{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled"),
        "RABBITMQ_CONFIG_FILE": str(home / "none"),
    }
    with (home / "output").open("wb") as output:
        process = subprocess.Popen(
            [_RABBITMQ], env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.2)
        else:
            pytest.fail((home / "output").read_text(errors="replace")[-2000:])
        yield port
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    directory = tmp_path_factory.mktemp("ours") / "data"
    options = ("--amqp-port", "0", "--mqtt-port", "off", "--http-port", "off")
    with ServerProcess(directory, options=options) as server:
        yield int(server.addresses.protocols["amqp"].rpartition(":")[2])


def _play(script: Callable[[Site], list[Any]], port: int) -> list[Any]:
    site = Site(port)
    try:
        return script(site)
    finally:
        site.close()


@pytest.mark.parametrize("script", _SCRIPTS, ids=lambda script: script.__name__)
def test_a_client_sees_what_it_sees_at_rabbitmq(script: Callable[[Site], list[Any]], rabbitmq: int, ours: int) -> None:
    expected, found = _play(script, rabbitmq), _play(script, ours)
    assert len(found) == len(expected)
    pairs = enumerate(zip(expected, found, strict=True))
    differences = {number: f"RabbitMQ {theirs!r}, ours {own!r}" for number, (theirs, own) in pairs if theirs != own}
    # A reason that is no longer needed has to go.
    assert differences.keys() == _REASONS.get(script.__name__, {}).keys(), differences
