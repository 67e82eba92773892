"""Logic queues over several brokers: nothing is lost, doubled or reordered while they move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_cluster import BrokerCluster, running_cluster
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.client.puller import Puller
from millstream.client.static_topics import StaticTopicOperations
from millstream.client.values import QueueAddress
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.filter import parse_tag_filter
from millstream.model.group import GroupConfig
from millstream.model.message import Message, StoredMessage
from millstream.model.operations import PullStatus
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.administration.static_topics import LOGIC_BROKER_NAME
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from patience import within_patience

TOPIC = "orders"


class Bench:
    """A cluster and a client of it."""

    def __init__(self, cluster: BrokerCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.static = StaticTopicOperations(client.conversations)
        self.producer = Producer(client)
        self.puller = Puller(client)

    async def create(self, queues: int, brokers: list[str], name: str = TOPIC) -> None:
        await self.client.run(self.static.create(TopicConfig(name), queues, brokers))

    async def remap(self, *brokers: str) -> dict[int, str]:
        return await self.client.run(self.static.remap(TOPIC, brokers))

    async def queues(self) -> list[QueueAddress]:
        return await self.client.queues(TOPIC)

    async def send(self, *bodies: str, group: str | None = None) -> None:
        for body in bodies:
            await self.producer.send(Message(TOPIC, body.encode(), message_group=group))

    async def read(self, queue: QueueAddress, offset: int = 0, tag: str = "*") -> list[StoredMessage]:
        """All messages of a queue, as a reader finds them who follows what he is told."""
        found: list[StoredMessage] = []
        while True:
            batch = await self.puller.pull(queue, offset, max_messages=7, filter=parse_tag_filter(tag))
            assert batch.status is not PullStatus.OFFSET_ILLEGAL, batch
            if batch.next_offset == offset:
                assert offset == batch.max_offset
                return found
            found += batch.messages(verify=True)
            offset = batch.next_offset


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running_cluster(tmp_path, ["a", "b", "c"]) as cluster, Client(cluster.nameserver) as client:
        yield Bench(cluster, client)


def bodies(messages: list[StoredMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


async def test_a_static_topic_has_its_queues_spread_over_its_brokers(bench: Bench) -> None:
    await bench.create(5, ["a", "b"])
    queues = await bench.queues()
    assert [queue.queue_id for queue in queues] == [0, 1, 2, 3, 4]
    assert {queue.broker_name for queue in queues} == {LOGIC_BROKER_NAME}
    led = {
        name: [*mapping.led_queues] for name in "abc" if (mapping := bench.cluster.brokers[name].topics.mapping(TOPIC))
    }
    assert led == {"a": [0, 2, 4], "b": [1, 3], "c": []}


async def test_a_moved_queue_is_read_over_all_brokers_that_hold_a_part(bench: Bench) -> None:
    await bench.create(1, ["a"])
    await bench.send(*map(str, range(20)))
    assert await bench.remap("b") == {0: "b"}
    await bench.send(*map(str, range(20, 33)))
    assert await bench.remap("c") == {0: "c"}
    await bench.send(*map(str, range(33, 40)))
    [queue] = await bench.queues()
    found = await bench.read(queue)
    assert bodies(found) == list(map(str, range(40)))
    assert [message.queue_offset for message in found] == list(range(40))
    assert {message.queue_id for message in found} == {0}


async def test_a_queue_that_comes_back_gets_a_new_physical_one(bench: Bench) -> None:
    await bench.create(1, ["a"])
    for number, broker in enumerate("baba"):
        await bench.send(str(number))
        await bench.remap(broker)
    await bench.send("last")
    [queue] = await bench.queues()
    assert bodies(await bench.read(queue)) == ["0", "1", "2", "3", "last"]


async def test_a_filter_holds_over_all_parts(bench: Bench) -> None:
    await bench.create(1, ["a"])
    for broker in "bca":
        for tag in ("red", "green"):
            await bench.producer.send(Message(TOPIC, f"{broker}-{tag}".encode(), tag=tag))
        await bench.remap(broker)
    [queue] = await bench.queues()
    assert bodies(await bench.read(queue, tag="green")) == ["b-green", "c-green", "a-green"]


async def test_one_broker_becomes_three_without_moving_data(bench: Bench) -> None:
    await bench.create(6, ["a"])
    await bench.send(*map(str, range(60)))
    before = bench.cluster.brokers["a"].maintenance.store.max_offset(TOPIC, 0)
    moved = await bench.remap("a", "b", "c")
    assert sorted(moved.values()) == ["b", "b", "c", "c"]
    assert bench.cluster.brokers["a"].maintenance.store.max_offset(TOPIC, 0) == before
    assert len(await bench.queues()) == 6
    await bench.send(*map(str, range(60, 120)))
    found = [body for queue in await bench.queues() for body in bodies(await bench.read(queue))]
    assert sorted(map(int, found)) == list(range(120))


async def test_offsets_and_times_are_asked_of_all_parts(bench: Bench) -> None:
    await bench.create(1, ["a"])
    await bench.send("0", "1", "2")
    await bench.remap("b")
    await bench.send("3", "4")
    [queue] = await bench.queues()
    found = await bench.read(queue)
    [held] = await bench.client.queue_ranges(TOPIC)
    assert (held.range.min_offset, held.range.max_offset) == (0, 5)
    for message in found:
        at = await bench.client.offset_by_time(queue, message.store_timestamp_ms)
        assert found[at].store_timestamp_ms == message.store_timestamp_ms
        last = await bench.client.offset_by_time(queue, message.store_timestamp_ms, upper=True)
        assert found[last].store_timestamp_ms == message.store_timestamp_ms
        assert at <= message.queue_offset <= last
    assert await bench.client.offset_by_time(queue, found[-1].store_timestamp_ms + 1) == 5
    assert await bench.client.offset_by_time(queue, 1, upper=True) == 0


@pytest.mark.parametrize("offset", range(7))
async def test_a_groups_offset_is_kept_over_a_move(bench: Bench, offset: int) -> None:
    await bench.create(1, ["a"])
    await bench.send("0", "1", "2")
    [queue] = await bench.queues()
    await bench.client.commit_offset("g", queue, min(offset, 3))
    await bench.remap("b")
    await bench.send("3", "4", "5")
    await bench.remap("c")
    [queue] = await bench.queues()
    assert await bench.client.query_offset("g", queue) == min(offset, 3)
    await bench.client.commit_offset("g", queue, offset)
    assert await bench.client.query_offset("g", queue) == offset


@pytest.mark.parametrize("back", range(7))
async def test_a_group_may_go_back_into_an_older_part(bench: Bench, back: int) -> None:
    await bench.create(1, ["a"])
    await bench.send("0", "1", "2")
    await bench.remap("b")
    await bench.send("3", "4", "5", "6")
    [queue] = await bench.queues()
    await bench.client.commit_offset("g", queue, 7)
    await bench.client.commit_offset("g", queue, back)
    assert await bench.client.query_offset("g", queue) == back


async def test_no_commit_takes_a_group_beyond_the_end_of_a_logic_queue(bench: Bench) -> None:
    await bench.create(1, ["a"])
    await bench.send("0", "1")
    await bench.remap("b")
    await bench.send("2")
    [queue] = await bench.queues()
    await bench.client.commit_offset("g", queue, 3)
    for offset in (4, (1 << 63) - 1):
        with pytest.raises(ConsumeRefused, match="is outside") as refused:
            await bench.client.commit_offset("g", queue, offset)
        assert refused.value.name == "ILLEGAL_OFFSET"
    assert await bench.client.query_offset("g", queue) == 3


async def test_a_broker_that_does_not_lead_says_so(bench: Bench) -> None:
    await bench.create(1, ["a"])
    [old] = await bench.queues()
    await bench.remap("b")
    with pytest.raises(NameRefused, match="not stored by 'a'"):
        await bench.cluster.brokers["a"].queues.range_of(TOPIC, 0)
    assert bodies(await bench.read(old)) == []


async def test_a_reader_who_waits_follows_a_move_at_once(bench: Bench) -> None:
    await bench.create(1, ["a"])
    await bench.send("0")
    [queue] = await bench.queues()
    waiting = asyncio.create_task(bench.puller.pull(queue, 1, wait_ms=20_000))
    await asyncio.sleep(0.05)
    await bench.remap("b")
    await bench.send("1")
    batch = await within_patience(waiting)
    assert bodies(batch.messages()) == ["1"]


async def test_mappings_outlive_a_restart(bench: Bench) -> None:
    await bench.create(2, ["a"])
    await bench.send("0", "1")
    await bench.remap("a", "b")
    await bench.send("2", "3")
    for name in ("a", "b"):
        await bench.cluster.stop(name)
        await bench.cluster.start(name)
    bench.client.conversations.forget_route(TOPIC)
    found = [body for queue in await bench.queues() for body in bodies(await bench.read(queue))]
    assert sorted(found) == ["0", "1", "2", "3"]


async def test_a_part_whose_broker_is_away_is_an_error_and_not_a_gap(bench: Bench) -> None:
    await bench.create(1, ["a"])
    await bench.send("0")
    await bench.remap("b")
    await bench.cluster.stop("a")
    [queue] = await bench.queues()
    with pytest.raises(Exception, match="MS-2343"):
        await bench.puller.pull(queue, 0)
    await bench.send("1")
    assert bodies(await bench.read(queue, 1)) == ["1"]
    await bench.cluster.start("a")
    assert bodies(await bench.read(queue)) == ["0", "1"]


async def test_a_topic_gets_more_queues(bench: Bench) -> None:
    await bench.create(2, ["a"])
    await bench.create(5, ["a", "b"])
    assert len(await bench.queues()) == 5
    with pytest.raises(NameRefused, match="cannot have fewer"):
        await bench.create(4, ["a"])


async def test_a_deleted_topic_leaves_no_mapping(bench: Bench) -> None:
    await bench.create(2, ["a"])
    await bench.client.delete_topic(TOPIC)
    assert all(broker.topics.mapping(TOPIC) is None for broker in bench.cluster.brokers.values())
    await bench.client.create_topic(TopicConfig(TOPIC))
    with pytest.raises(NameRefused, match="queues of the topic 'orders' are those of its brokers"):
        await bench.remap("a")


@pytest.mark.parametrize("kind", [MessageType.DELAY, MessageType.TRANSACTION, MessageType.LITE, MessageType.PRIORITY])
async def test_messages_that_take_a_detour_have_no_static_topic(bench: Bench, kind: MessageType) -> None:
    with pytest.raises(NameRefused, match=kind.value):
        await bench.client.run(bench.static.create(TopicConfig("t", kind), 1))


async def test_the_oldest_message_may_lie_with_another_broker(bench: Bench) -> None:
    await bench.create(2, ["a"])
    await bench.remap("b", "c")
    await bench.producer.send_many([Message(TOPIC, b"x") for _ in range(2)])
    await bench.remap("a")
    for queue in await bench.queues():
        [found] = await bench.read(queue)
        ext = {"topic": TOPIC, "queueId": str(queue.queue_id)}
        command = RemotingCommand(RequestCode.GET_EARLIEST_MSG_STORE_TIME, ext)
        answer = await bench.client.run(bench.client.conversations.ask(queue.broker_address, command))
        assert answer.ext["timestamp"] == str(found.store_timestamp_ms)


async def test_settings_that_count_queues_by_broker_are_refused(bench: Bench) -> None:
    await bench.create(2, ["a"])
    with pytest.raises(NameRefused, match="MS-2341"):
        await bench.client.create_topic(TopicConfig(TOPIC, read_queues=8, write_queues=8))
    await bench.client.create_topic(TopicConfig("ordinary"))
    with pytest.raises(NameRefused, match="MS-2102"):
        await bench.create(2, ["a"], "ordinary")


async def test_a_message_is_found_by_its_key_under_the_numbers_that_clients_know(bench: Bench) -> None:
    await bench.create(1, ["a"])
    await bench.send("0")
    await bench.remap("b")
    await bench.producer.send(Message(TOPIC, b"1", keys=("k",)))
    search = bench.client.conversations.find_by_key(TOPIC, "k", begin_ms=0, end_ms=2**62, max_results=9)
    [found] = await bench.client.run(search)
    assert (found.body, found.queue_id, found.queue_offset) == (b"1", 0, 1)


async def test_a_group_that_kept_order_keeps_it_at_the_new_broker(bench: Bench) -> None:
    await bench.create(1, ["a"])
    bench.cluster.brokers["a"].groups.create(GroupConfig("f", fifo=True, max_attempts=3))
    await bench.remap("b")
    assert bench.cluster.brokers["b"].groups.get("f") == bench.cluster.brokers["a"].groups.get("f")
