"""Queues that move while messages are sent and read, and coordinators that die on the way."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from broker_cluster import BrokerCluster, running_cluster
from millstream.broker.broker import BrokerOptions
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.client.puller import Puller
from millstream.client.static_topics import StaticTopicOperations
from millstream.model.errors import MillstreamError
from millstream.model.logic_queue import TopicMapping
from millstream.model.message import Message, OutgoingMessage
from millstream.model.topic import MessageType, TopicConfig
from servers import SMALL_STORE

TOPIC = "moving"
CONFIG = TopicConfig(TOPIC, MessageType.FIFO)
QUEUES = 4
KEYS = [f"key-{number}" for number in range(8)]


async def die_after(client: Client, steps: int, *brokers: str) -> bool:
    """Move the queues, but stop after so many requests; whether it got to the end."""
    conversation = StaticTopicOperations(client.conversations).remap(TOPIC, brokers)
    try:
        ask = next(conversation)
        for _ in range(steps):
            ask = conversation.send(await client.ask(ask))
    except StopIteration:
        return True
    conversation.close()
    return False


@dataclass
class Traffic:
    """Senders of numbered messages by key, and readers of all queues, until told to stop."""

    client: Client
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    read: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    offsets: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    is_over: bool = False
    max_gaps: int = 0
    """Offsets that may be left out of a queue: one each time that it moves on before a message came."""

    async def until(self, more: int) -> None:
        """Wait for so many further messages of each key."""
        before = dict(self.sent)
        while any(self.sent[key] < before.get(key, 0) + more for key in KEYS):
            for task in self.tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    async def send(self, key: str) -> None:
        producer = Producer(self.client)
        while not self.is_over:
            body = f"{key} {self.sent[key]}".encode()
            await producer.send(Message(TOPIC, body, message_group=key))
            self.sent[key] += 1

    async def follow(self, number: int) -> None:
        puller, offset = Puller(self.client), 0
        while True:
            queue = (await self.client.queues(TOPIC))[number]
            batch = await puller.pull(queue, offset, wait_ms=100)
            for message in batch.messages():
                key, _, count = message.body.decode().partition(" ")
                self.read[key].append(int(count))
                self.offsets[number].append(message.queue_offset)
            if self.is_over and batch.next_offset == offset == batch.max_offset:
                return
            offset = batch.next_offset

    def check(self) -> None:
        """Each message once, each key in order, offsets that rise by one."""
        for key, count in self.sent.items():
            assert self.read[key] == list(range(count)), key
        for offsets in self.offsets.values():
            assert all(before < after for before, after in pairwise(offsets))
            assert offsets[-1] + 1 - len(offsets) <= self.max_gaps


@asynccontextmanager
async def traffic(cluster: BrokerCluster) -> AsyncIterator[tuple[Client, Traffic]]:
    async with Client(cluster.nameserver) as client, Client(cluster.nameserver) as other:
        await client.run(StaticTopicOperations(client.conversations).create(CONFIG, QUEUES, ["a"]))
        flow = Traffic(other)
        flow.tasks = [asyncio.create_task(flow.send(key)) for key in KEYS]
        flow.tasks += [asyncio.create_task(flow.follow(number)) for number in range(QUEUES)]
        try:
            await flow.until(20)
            yield client, flow
            await flow.until(20)
            flow.is_over = True
            await asyncio.gather(*flow.tasks)
        finally:
            for task in flow.tasks:
                task.cancel()
        flow.check()


async def test_nothing_is_lost_or_reordered_while_queues_move_under_load(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, ["a", "b", "c"]) as cluster, traffic(cluster) as (client, flow):
        for brokers in (["a", "b"], ["a", "b", "c"], ["c"], ["b", "a"]):
            await client.run(StaticTopicOperations(client.conversations).remap(TOPIC, brokers))
            await flow.until(5)


# Every fifth step is quick enough for `make test`.
@pytest.mark.parametrize(
    "steps", [pytest.param(steps, marks=() if steps % 5 == 1 else pytest.mark.long) for steps in range(1, 26)]
)
async def test_a_second_run_finishes_what_a_killed_coordinator_began(tmp_path: Path, steps: int) -> None:
    async with running_cluster(tmp_path, ["a", "b", "c"]) as cluster, traffic(cluster) as (client, flow):
        if not await die_after(client, steps, "b", "c"):
            await asyncio.sleep(0.02)
            await client.run(StaticTopicOperations(client.conversations).remap(TOPIC, ["b", "c"]))
        mappings = [broker.topics.mapping(TOPIC) for broker in cluster.brokers.values()]
        assert len({mapping.epoch for mapping in mappings if mapping}) == 1
        assert [sorted(mapping.led_queues) for mapping in mappings if mapping] == [[], [0, 1], [2, 3]]
        await flow.until(5)


async def test_two_coordinators_at_once_leave_one_leader(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, ["a", "b", "c"]) as cluster,
        traffic(cluster) as (client, flow),
        Client(cluster.nameserver) as other,
    ):
        flow.max_gaps = 4
        runs = [
            each.run(StaticTopicOperations(each.conversations).remap(TOPIC, brokers))
            for each, brokers in ((client, ["b"]), (other, ["c"]))
        ]
        for ended in await asyncio.gather(*runs, return_exceptions=True):
            assert isinstance(ended, dict | MillstreamError), ended
        await client.run(StaticTopicOperations(client.conversations).remap(TOPIC, ["a", "b"]))


@pytest.mark.parametrize("steps", [4, 6, 8, 9, 10, 12])
async def test_brokers_restart_in_the_middle_of_a_move(tmp_path: Path, steps: int) -> None:
    async with running_cluster(tmp_path, ["a", "b"]) as cluster, Client(cluster.nameserver) as client:
        static = StaticTopicOperations(client.conversations)
        await client.run(static.create(CONFIG, QUEUES, ["a"]))
        flow = Traffic(client)
        for key in KEYS:
            for _ in range(5):
                await Producer(client).send(Message(TOPIC, f"{key} {flow.sent[key]}".encode(), message_group=key))
                flow.sent[key] += 1
        await die_after(client, steps, "b")
        for name in ("a", "b"):
            await cluster.stop(name)
            await cluster.start(name)
        await client.run(static.remap(TOPIC, ["b"]))
        flow.is_over = True
        await asyncio.gather(*(flow.follow(number) for number in range(QUEUES)))
        flow.check()


async def test_a_change_is_answered_when_all_that_was_accepted_before_is_on_the_disk(tmp_path: Path) -> None:
    options = BrokerOptions(store=replace(SMALL_STORE, sync_flush=True))
    async with running_cluster(tmp_path, ["a"], options=options) as cluster, Client(cluster.nameserver) as client:
        view = await client.run(StaticTopicOperations(client.conversations).create(CONFIG, 1))
        broker = cluster.brokers["a"]
        messages = [OutgoingMessage(TOPIC, b"x", {"__SHARDINGKEY": "k"}) for _ in range(100)]
        sending = asyncio.create_task(broker.delivery.send(messages))
        await asyncio.sleep(0)
        assert not sending.done()
        config = broker.topics.get(TOPIC)
        await broker.queues.change_static(config, TopicMapping(TOPIC, "a", 1, view.epoch + 1, view.queues))
        assert sending.done()
