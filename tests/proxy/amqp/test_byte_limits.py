"""Queues that hold so many bytes at most (`x-max-length-bytes`), by pika."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest

from amqp_ports import AmqpSite, running_amqp
from millstream.proxy.amqp.declarations import AmqpQueue
from millstream.proxy.amqp.queue_reader import ReadyMessages
from millstream.proxy.amqp.queues import ProxyQueues
from patience import eventually_blocking

pika = pytest.importorskip("pika")

from pika import BasicProperties, exceptions  # noqa: E402
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection  # noqa: E402


@pytest.fixture(scope="module", params=["local", "remote"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpSite]:
    with running_amqp(tmp_path_factory.mktemp("amqp"), remote=request.param == "remote") as running:
        yield running


@pytest.fixture
def connection(site: AmqpSite) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port))
    yield connection
    connection.close()


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def bounded(channel: BlockingChannel, **arguments: Any) -> str:
    declared = channel.queue_declare(
        "", exclusive=True, arguments={f"x-{name}": value for name, value in arguments.items()}
    )
    return str(declared.method.queue)


def publish(channel: BlockingChannel, name: str, *bodies: bytes, priority: int | None = None) -> list[bool]:
    """Whether each was taken."""
    taken = []
    for body in bodies:
        try:
            channel.basic_publish("", name, body, BasicProperties(priority=priority))
            taken.append(True)
        except exceptions.NackError:
            taken.append(False)
    return taken


def take_all(channel: BlockingChannel, name: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_a_queue_that_has_too_many_bytes_drops_its_oldest_messages(channel: BlockingChannel) -> None:
    dead = bounded(channel)
    arguments = {"dead-letter-exchange": "", "dead-letter-routing-key": dead}
    name = bounded(channel, **{"max-length-bytes": 100, **arguments})
    assert publish(channel, name, b"a" * 40, b"b" * 40, b"c" * 20) == [True] * 3
    assert channel.queue_declare(name, passive=True).method.message_count == 3
    publish(channel, name, b"d" * 30)
    assert take_all(channel, name) == [b"b" * 40, b"c" * 20, b"d" * 30]
    dropped: list[bytes] = []
    eventually_blocking(lambda: bool(dropped.extend(take_all(channel, dead)) or dropped))
    assert dropped == [b"a" * 40]


def test_a_large_message_drops_as_many_small_ones_as_it_needs_and_no_more(channel: BlockingChannel) -> None:
    name = bounded(channel, **{"max-length-bytes": 1000})
    publish(channel, name, b"x" * 500, *[b"%d" % number for number in range(10, 60)], b"y" * 450)
    # Beside the 450 there is room for the 100 of the small ones.
    assert take_all(channel, name) == [*[b"%d" % number for number in range(10, 60)], b"y" * 450]
    publish(channel, name, *[b"x" * 10] * 50, b"y" * 1000)
    assert take_all(channel, name) == [b"y" * 1000]


def test_those_who_drop_at_one_time_drop_no_more_than_one_would(
    site: AmqpSite, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = bounded(channel, **{"max-length-bytes": 1000})
    queues = site.server.shared.queues
    with monkeypatch.context() as nobody_drops:
        nobody_drops.setattr(ProxyQueues, "enforce_length", AsyncMock())
        publish(channel, name, *[b"x" * 10] * 50, b"y" * 1000)
    host = site.server.shared.topology.hosts["/"]

    async def drop() -> None:
        await asyncio.gather(*(queues.enforce_length(host, host.queues[name]) for _ in range(3)))

    site.run(drop())
    assert take_all(channel, name) == [b"y" * 1000]


def test_a_message_over_the_limit_is_dropped_with_all_before_it(channel: BlockingChannel) -> None:
    name = bounded(channel, **{"max-length-bytes": 10})
    assert publish(channel, name, b"abc", b"x" * 11) == [True, True]
    assert take_all(channel, name) == []


def test_a_queue_may_refuse_what_it_has_no_bytes_for(channel: BlockingChannel) -> None:
    name = bounded(channel, **{"max-length-bytes": 10, "overflow": "reject-publish"})
    bodies = [b"12345", b"123456", b"54321", b"", b"x"]
    assert publish(channel, name, *bodies) == [True, False, True, True, False]
    assert take_all(channel, name) == [b"12345", b"54321", b""]
    assert publish(channel, name, b"again") == [True]


def test_of_two_limits_the_first_that_is_reached_counts(channel: BlockingChannel) -> None:
    name = bounded(channel, **{"max-length": 3, "max-length-bytes": 10})
    publish(channel, name, b"1", b"2", b"3", b"4")
    assert take_all(channel, name) == [b"2", b"3", b"4"]
    publish(channel, name, b"1", b"123456", b"12345")
    assert take_all(channel, name) == [b"12345"]


def test_what_consumers_have_does_not_count(channel: BlockingChannel) -> None:
    name = bounded(channel, **{"max-length-bytes": 10})
    publish(channel, name, b"1234567890")
    method, _, _ = channel.basic_get(name)
    publish(channel, name, b"abcdefghij")
    channel.basic_nack(method.delivery_tag, requeue=True)
    # Together they are too many, until the next message comes.
    eventually_blocking(lambda: channel.queue_declare(name, passive=True).method.message_count == 2)
    publish(channel, name, b"")
    assert take_all(channel, name) == [b"abcdefghij", b""]


def test_what_is_held_for_priorities_counts(channel: BlockingChannel) -> None:
    name = bounded(channel, **{"max-length-bytes": 25, "max-priority": 5, "overflow": "reject-publish"})
    found: list[bytes] = []
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(name, lambda _c, _m, _p, body: found.append(body))
    assert publish(channel, name, b"x" * 10, priority=1) == [True]

    def has_come() -> bool:
        channel.connection.process_data_events(0.01)
        return bool(found)

    eventually_blocking(has_come)
    assert publish(channel, name, b"y" * 10, b"z" * 10, b"u" * 10, priority=2) == [True, True, False]


@pytest.mark.parametrize(
    ("count", "size_bytes", "limits", "excess", "has_room"),
    [
        (3, 0, {"x-max-length": 3}, 0, False),
        (2, 0, {"x-max-length": 3}, 0, True),
        (5, 0, {"x-max-length": 3}, 2, False),
        (4, 100, {"x-max-length-bytes": 100}, 0, False),
        (4, 99, {"x-max-length-bytes": 100}, 0, True),
        (4, 101, {"x-max-length-bytes": 100}, 1, False),
        (4, 200, {"x-max-length-bytes": 100}, 2, False),
        (0, 0, {"x-max-length": 0}, 0, False),
        (0, 1, {"x-max-length-bytes": 0}, 1, False),
        (4, 99, {"x-max-length": 1, "x-max-length-bytes": 100}, 3, False),
    ],
)
def test_limits_say_how_much_is_too_much(
    count: int, size_bytes: int, limits: dict[str, int], excess: int, has_room: bool
) -> None:
    queue = AmqpQueue("q", arguments=limits)
    ready = ReadyMessages(count, size_bytes)
    assert (ready.excess(queue), ready.has_room(queue, 1)) == (excess, has_room)
