"""Packed bodies that take long to unpack: the port goes on meanwhile, and messages keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from amqp_ports import AmqpSite, running_amqp
from patience import eventually_blocking
from slow_unpacking import HEAVY_BODY, packed, slow_unpacking

pika = pytest.importorskip("pika")

from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection  # noqa: E402

_THREADS = {"millstream-heavy"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpSite]:
    with running_amqp(tmp_path_factory.mktemp("amqp")) as running:
        yield running


def open_channel(site: AmqpSite) -> BlockingChannel:
    return BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port)).channel()


@pytest.fixture
def channel(site: AmqpSite) -> Iterator[BlockingChannel]:
    channel = open_channel(site)
    channel.exchange_declare("heavy", "fanout")
    yield channel
    channel.connection.close()


def fill(site: AmqpSite, channel: BlockingChannel, name: str, *bodies: bytes, **arguments: Any) -> None:
    """A queue with these messages, of which those of many bytes are packed."""
    channel.queue_declare(name, arguments=arguments)
    channel.queue_bind(name, "heavy")
    for number, body in enumerate(bodies):
        message = packed("heavy", body, amqp_priority=str(number))
        if len(body) < len(HEAVY_BODY):
            message = packed("heavy", body)
        site.run(site.backend.send([message]))
    channel.queue_unbind(name, "heavy")


def consume(channel: BlockingChannel, name: str, found: list[tuple[bytes, bool]]) -> str:
    return channel.basic_consume(name, lambda _c, method, _p, body: found.append((body, method.redelivered)))


def wait_for(channel: BlockingChannel, condition: Any) -> None:
    def look() -> bool:
        channel.connection.process_data_events(0.01)
        return bool(condition())

    eventually_blocking(look)


def test_the_port_goes_on_while_a_body_is_unpacked_and_the_order_is_kept(
    site: AmqpSite, channel: BlockingChannel
) -> None:
    fill(site, channel, "ordered", b"first", HEAVY_BODY, b"last")
    found: list[tuple[bytes, bool]] = []
    with slow_unpacking() as slow:
        consume(channel, "ordered", found)
        wait_for(channel, lambda: found and slow.begun.is_set())
        # Other messages of the same channel, and other clients.
        channel.queue_declare("others")
        channel.basic_publish("", "others", b"beside")
        other = open_channel(site)
        eventually_blocking(lambda: other.basic_get("others", auto_ack=True)[2] == b"beside")
        other.connection.close()
        assert found == [(b"first", False)]
        slow.go_on.set()
        wait_for(channel, lambda: len(found) == 3)
    assert found == [(b"first", False), (HEAVY_BODY, False), (b"last", False)]
    assert slow.threads == _THREADS


def test_a_get_waits_for_its_body_and_what_follows_on_its_channel_with_it(
    site: AmqpSite, channel: BlockingChannel
) -> None:
    fill(site, channel, "got", HEAVY_BODY)
    with slow_unpacking() as slow:
        found: list[bytes] = []
        impl = channel._impl
        impl.basic_get("got", lambda _c, _m, _p, body: found.append(body), auto_ack=True)
        wait_for(channel, slow.begun.is_set)
        other = open_channel(site)
        other.queue_declare("got", passive=True)
        other.connection.close()
        assert found == []
        slow.go_on.set()
        wait_for(channel, lambda: found)
    assert (found, slow.threads) == ([HEAVY_BODY], _THREADS)


def test_what_was_unpacked_for_a_consumer_that_has_gone_is_for_others(site: AmqpSite, channel: BlockingChannel) -> None:
    fill(site, channel, "left", HEAVY_BODY, b"behind")
    with slow_unpacking() as slow:
        tag = consume(channel, "left", [])
        wait_for(channel, slow.begun.is_set)
        channel.basic_cancel(tag)
        eventually_blocking(lambda: channel.queue_declare("left", passive=True).method.message_count == 2)
        slow.go_on.set()
        found: list[tuple[bytes, bool]] = []
        consume(channel, "left", found)
        wait_for(channel, lambda: len(found) == 2)
    assert found == [(HEAVY_BODY, False), (b"behind", False)]


def test_a_refused_unpacking_is_tried_again(site: AmqpSite, channel: BlockingChannel, monkeypatch: Any) -> None:
    from millstream.model.errors import ConsumeRefused
    from millstream.proxy import stored_body

    fill(site, channel, "refused", HEAVY_BODY, b"behind")
    run, refusals = stored_body.HEAVY_WORK.run, [ConsumeRefused("TOO_MANY_REQUESTS", "full")] * 2

    class Full:
        async def run(self, size_bytes: int, work: Any) -> Any:
            if refusals:
                raise refusals.pop()
            return await run(size_bytes, work)

    monkeypatch.setattr(stored_body, "HEAVY_WORK", Full())
    found: list[tuple[bytes, bool]] = []
    consume(channel, "refused", found)
    wait_for(channel, lambda: len(found) == 2)
    assert found == [(HEAVY_BODY, False), (b"behind", False)]


def test_bodies_are_unpacked_before_they_are_sorted_by_priority(site: AmqpSite, channel: BlockingChannel) -> None:
    arguments = {"x-max-priority": 9}
    fill(site, channel, "sorted", HEAVY_BODY, HEAVY_BODY + b"!", **arguments)
    found: list[tuple[bytes, bool]] = []
    with slow_unpacking() as slow:
        slow.go_on.set()
        consume(channel, "sorted", found)
        wait_for(channel, lambda: len(found) == 2)
    assert [body for body, _ in found] == [HEAVY_BODY + b"!", HEAVY_BODY]
    assert slow.threads == _THREADS


def test_a_dead_letter_is_unpacked_beside_the_loop(site: AmqpSite, channel: BlockingChannel) -> None:
    channel.queue_declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    fill(site, channel, "dying", HEAVY_BODY, **arguments)
    method, _, _ = channel.basic_get("dying")
    with slow_unpacking() as slow:
        channel.basic_reject(method.delivery_tag, requeue=False)
        wait_for(channel, slow.begun.is_set)
        assert channel.queue_declare("dead", passive=True).method.message_count == 0
        slow.go_on.set()
        found: list[tuple[bytes, bool]] = []
        consume(channel, "dead", found)
        wait_for(channel, lambda: found)
    assert (found, slow.threads) == ([(HEAVY_BODY, False)], _THREADS)
