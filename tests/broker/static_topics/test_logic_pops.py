"""Popping from queues that move: what is in flight stays where it is, and order is kept where it is promised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_cluster import BrokerCluster, running_cluster
from millstream.client.client import Client
from millstream.client.group_operations import GroupOperations
from millstream.client.static_topics import StaticTopicOperations
from millstream.model.clock import ManualClock
from millstream.model.errors import ConsumeRefused
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage, PopRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.administration.consumption import BrokerProgress
from patience import within_patience

TOPIC = "jobs"


class Bench:
    """A static topic of one queue, which begins at broker `a`; group `g`, and `f` that keeps order."""

    def __init__(self, cluster: BrokerCluster, client: Client, clock: ManualClock) -> None:
        self.cluster = cluster
        self.client = client
        self.clock = clock
        self.leader = "a"

    async def begin(self) -> None:
        static = StaticTopicOperations(self.client.conversations)
        await self.client.run(static.create(TopicConfig(TOPIC, MessageType.FIFO), 1, ["a"]))
        for name in ("g", "f"):
            await self.client.create_group(GroupConfig(name, fifo=name == "f", max_attempts=3))

    async def move(self, broker: str) -> None:
        await self.client.run(StaticTopicOperations(self.client.conversations).remap(TOPIC, [broker]))
        self.leader = broker

    async def send(self, *bodies: str) -> None:
        messages = [OutgoingMessage(TOPIC, body.encode(), {"__SHARDINGKEY": body[0]}) for body in bodies]
        await self.cluster.brokers[self.leader].delivery.send(messages)

    async def pop(self, group: str = "g", *, wait_ms: int = 0, count: int = 32) -> list[PoppedMessage]:
        request = PopRequest(group, TOPIC, 60_000, 0, max_messages=count, wait_ms=wait_ms)
        return await self.cluster.brokers[self.leader].delivery.pop(request)

    def ack(self, *popped: PoppedMessage, group: str = "g") -> None:
        for one in popped:
            self.cluster.brokers[one.handle.broker_name].delivery.ack(AckRequest(group, TOPIC, one.handle))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    clock = ManualClock()
    async with running_cluster(tmp_path, ["a", "b", "c"], clock=clock) as cluster, Client(cluster.nameserver) as client:
        bench = Bench(cluster, client, clock)
        await bench.begin()
        yield bench


def bodies(popped: list[PoppedMessage]) -> list[str]:
    return [one.message.body.decode() for one in popped]


def offsets(popped: list[PoppedMessage]) -> list[int]:
    return [one.message.queue_offset for one in popped]


async def test_messages_of_older_parts_are_delivered_by_the_new_leader(bench: Bench) -> None:
    await bench.send("x1", "x2")
    await bench.move("b")
    await bench.send("x3")
    found = await bench.pop()
    found += await bench.pop()
    assert sorted(bodies(found)) == ["x1", "x2", "x3"]
    assert sorted(offsets(found)) == [0, 1, 2]
    bench.ack(*found)
    bench.clock.advance_ms(61_000)
    assert await bench.pop() == []


async def test_a_delivery_from_before_the_move_is_acknowledged_after_it(bench: Bench) -> None:
    await bench.send("x1", "x2")
    before = await bench.pop()
    await bench.move("b")
    bench.ack(before[0])
    bench.clock.advance_ms(61_000)
    again = await bench.pop()
    assert bodies(again) == ["x2"]
    assert again[0].delivery_attempt == 2
    assert again[0].handle.broker_name == "a"


async def test_a_delivery_of_an_older_part_can_be_put_off(bench: Bench) -> None:
    await bench.send("x1")
    await bench.move("b")
    [one] = await bench.pop()
    handle = bench.cluster.brokers["a"].delivery.change_invisible(ChangeInvisibleRequest("g", TOPIC, one.handle, 0))
    assert (handle.queue_id, handle.queue_offset, handle.broker_name) == (0, 0, "a")
    [again] = await bench.pop()
    bench.ack(again)


async def test_a_handle_is_not_taken_by_another_broker(bench: Bench) -> None:
    await bench.send("x1")
    await bench.move("b")
    [one] = await bench.pop()
    with pytest.raises(ConsumeRefused, match="MS-3201"):
        bench.cluster.brokers["b"].delivery.ack(AckRequest("g", TOPIC, one.handle))


async def test_order_is_kept_over_the_seam(bench: Bench) -> None:
    await bench.send("x1", "x2")
    [*first] = await bench.pop("f", count=1)
    await bench.move("b")
    await bench.send("x3", "x4")
    assert bodies(first) == ["x1"]
    assert await bench.pop("f") == []
    bench.ack(*first, group="f")
    second = await bench.pop("f", count=1)
    assert bodies(second) == ["x2"]
    assert await bench.pop("f") == []
    bench.ack(*second, group="f")
    third = await bench.pop("f")
    assert bodies(third) == ["x3", "x4"]


async def test_order_is_kept_over_a_queue_that_comes_back(bench: Bench) -> None:
    await bench.send("x1")
    await bench.move("b")
    await bench.send("x2")
    await bench.move("a")
    await bench.send("x3")
    for body in ("x1", "x2", "x3"):
        found = await bench.pop("f")
        assert bodies(found) == [body]
        assert await bench.pop("f") == []
        bench.ack(*found, group="f")


async def test_a_new_group_begins_where_its_settings_say(bench: Bench) -> None:
    await bench.client.create_group(GroupConfig("late", first_position=FirstPosition.LAST))
    await bench.send("x1")
    await bench.move("b")
    await bench.send("x2")
    assert await bench.pop("late") == []
    await bench.send("x3")
    assert bodies(await bench.pop("late")) == ["x3"]


async def test_a_pop_that_waits_hears_of_new_messages(bench: Bench) -> None:
    await bench.send("x1")
    bench.ack(*await bench.pop())
    await bench.move("b")
    waiting = asyncio.create_task(bench.pop(wait_ms=20_000))
    await asyncio.sleep(0.05)
    await bench.send("x2")
    assert bodies(await within_patience(waiting)) == ["x2"]


async def test_a_message_dies_where_it_lies(bench: Bench) -> None:
    await bench.send("x1")
    await bench.move("b")
    for _ in range(3):
        assert bodies(await bench.pop()) == ["x1"]
        bench.clock.advance_ms(61_000)
    assert await bench.pop() == []
    assert bench.cluster.brokers["a"].maintenance.store.max_offset("%DLQ%g", 0) == 1


async def test_the_lag_counts_all_parts_of_a_queue(bench: Bench) -> None:
    await bench.send("x1", "x2")
    first = await bench.pop(count=1)
    bench.ack(*first)
    await bench.move("b")
    await bench.send("x3", "x4", "x5")
    [row] = [row for row in await progress(bench) if row.progress.topic == TOPIC]
    assert row.broker_name == "b"
    assert (row.progress.queue_id, row.progress.committed, row.progress.max_offset, row.progress.lag) == (0, 1, 5, 4)
    bench.ack(*await bench.pop(), *await bench.pop())
    [row] = [row for row in await progress(bench) if row.progress.topic == TOPIC]
    assert (row.progress.committed, row.progress.lag) == (5, 0)


@pytest.mark.parametrize("offset", range(6))
async def test_a_reset_reaches_all_parts_of_a_queue(bench: Bench, offset: int) -> None:
    await bench.send("x1", "x2")
    await bench.move("b")
    await bench.send("x3", "x4", "x5")
    bench.ack(*await bench.pop(), *await bench.pop())
    [row] = [row for row in await progress(bench) if row.progress.topic == TOPIC]
    groups = GroupOperations(bench.client.conversations)
    await bench.client.run(groups.reset("g", row, offset))
    found = [*await bench.pop(), *await bench.pop()]
    assert sorted(offsets(found)) == list(range(offset, 5))


async def progress(bench: Bench) -> list[BrokerProgress]:
    return await bench.client.run(GroupOperations(bench.client.conversations).progress("g", TOPIC))
