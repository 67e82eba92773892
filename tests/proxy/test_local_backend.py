"""The backend over a broker in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millstream.broker.broker import Broker, BrokerOptions
from millstream.model.clock import ManualClock
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PoppedMessage
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor, ReceiveRequest
from millstream.store.message_store import StoreOptions


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    options = BrokerOptions(store=StoreOptions(segment_bytes=1 << 20, consume_queue_entries=1000))
    started = Broker(tmp_path, options=options, clock=clock)
    await started.start()
    started.topics.create(TopicConfig("orders"))
    yield started
    await started.close()


@pytest.fixture
def backend(broker: Broker) -> LocalBackend:
    return LocalBackend(broker)


async def receive(processor: Processor, topic: str = "orders", broker_name: str = "broker-a") -> list[PoppedMessage]:
    return await processor.receive(ReceiveRequest("c", "g", topic, broker_name, invisible_ms=None))


async def send(processor: Processor, body: bytes = b"body") -> None:
    await processor.send([OutgoingMessage("orders", body, {"UNIQ_KEY": "01ABC", "a": "b"})])


async def test_a_route_tells_each_queue_what_may_be_done_with_it(broker: Broker, backend: LocalBackend) -> None:
    broker.topics.create(TopicConfig("uneven", MessageType.FIFO, read_queues=1, write_queues=3))
    route = await backend.route("uneven")
    both = Permission.READ | Permission.WRITE
    assert [(queue.broker_name, queue.queue_id, queue.permission) for queue in route.queues] == [
        ("broker-a", 0, both),
        ("broker-a", 1, Permission.WRITE),
        ("broker-a", 2, Permission.WRITE),
    ]
    assert (route.topic, route.message_type) == ("uneven", MessageType.FIFO)


async def test_an_unknown_topic_has_no_route(backend: LocalBackend) -> None:
    with pytest.raises(NameRefused) as refusal:
        await backend.route("missing")
    assert refusal.value.name == "TOPIC_NOT_FOUND"


async def test_a_group_is_made_when_it_is_first_asked_for(broker: Broker, backend: LocalBackend) -> None:
    assert (await backend.group("new")).name == "new"
    assert broker.groups.find("new") is not None


async def test_a_message_is_received_renewed_and_acknowledged(processor: Processor, clock: ManualClock) -> None:
    await send(processor)
    (popped,) = await receive(processor)
    assert (popped.message.body, popped.message.user_properties) == (b"body", {"a": "b"})
    for _ in range(300):
        clock.advance_ms(1000)
        processor.note_alive("c")
        await processor.sweep()
    assert await receive(processor) == []
    await processor.ack("g", "orders", popped.handle.encode())
    clock.advance_ms(120_000)
    assert await receive(processor) == []


async def test_what_a_client_held_is_received_by_another_a_second_after_it_ended(
    processor: Processor, clock: ManualClock
) -> None:
    await send(processor)
    await receive(processor)
    await processor.terminate("c")
    assert await receive(processor) == []
    clock.advance_ms(1000)
    (again,) = await receive(processor)
    assert again.delivery_attempt == 2


async def test_another_brokers_name_is_refused(processor: Processor) -> None:
    with pytest.raises(NameRefused, match="broker-z") as refusal:
        await receive(processor, broker_name="broker-z")
    assert refusal.value.name == "QUEUE_NOT_FOUND"
    with pytest.raises(ConsumeRefused) as dead:
        await processor.ack("g", "orders", "0 0 60000 0 0 broker-z 0 0 0")
    assert dead.value.name == "INVALID_RECEIPT_HANDLE"


async def test_a_dead_letter_can_be_received_from_the_groups_dead_letter_topic(processor: Processor) -> None:
    await send(processor, b"bad")
    (popped,) = await receive(processor)
    await processor.dead_letter("g", "orders", popped.handle.encode())
    (buried,) = await receive(processor, "%DLQ%g")
    assert buried.message.body == b"bad"
    assert buried.message.properties["DLQ_ORIGIN_TOPIC"] == "orders"


async def renewed_for(processor: Processor, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance_ms(1000)
        processor.note_alive("c")
        await processor.sweep()


async def test_a_delivery_that_one_proxy_renews_is_acknowledged_through_another(
    processor: Processor, backend: LocalBackend, clock: ManualClock
) -> None:
    other = Processor(backend, clock=clock)
    await send(processor)
    (popped,) = await receive(processor)
    await renewed_for(processor, clock, 200)
    await other.ack("g", "orders", popped.handle.encode())
    await renewed_for(processor, clock, 200)
    assert len(processor.renewer.table) == 0, "the first proxy finds out and stops"
    assert await receive(other) == []


async def test_what_is_handed_back_through_another_proxy_is_no_longer_renewed_by_the_first(
    processor: Processor, backend: LocalBackend, clock: ManualClock
) -> None:
    other = Processor(backend, clock=clock)
    await send(processor)
    (popped,) = await receive(processor)
    await renewed_for(processor, clock, 200)
    await other.change_invisible("g", "orders", popped.handle.encode(), 0)
    (again,) = await receive(other)
    assert again.delivery_attempt == 2
    await renewed_for(processor, clock, 55)
    with pytest.raises(ConsumeRefused) as dead:
        await processor.ack("g", "orders", popped.handle.encode())
    assert dead.value.name == "INVALID_RECEIPT_HANDLE"
    await other.ack("g", "orders", again.handle.encode())


async def test_closing_one_proxy_ends_its_waits_and_not_those_of_another(
    processor: Processor, backend: LocalBackend, clock: ManualClock
) -> None:
    other = Processor(backend, clock=clock)
    wish = ReceiveRequest("c", "g", "orders", "broker-a", invisible_ms=30_000, wait_ms=20_000)
    here, there = asyncio.create_task(processor.receive(wish)), asyncio.create_task(other.receive(wish))
    await asyncio.sleep(0.01)
    processor.end_waits()
    assert await here == []
    assert await processor.receive(wish) == [], "later ones do not wait"
    await send(other)
    assert [one.message.body for one in await there] == [b"body"]
