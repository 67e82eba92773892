"""The asyncio client end to end."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from millstream.broker.remoting import broker_handlers
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.client.puller import Puller
from millstream.client.values import QueueAddress
from millstream.cluster.nameserver import BrokerRegistration
from millstream.model.errors import (
    ConnectionFailed,
    ConsumeRefused,
    MessageRefused,
    NameRefused,
    TimedOut,
    Unreachable,
)
from millstream.model.filter import parse_tag_filter
from millstream.model.group import GroupConfig
from millstream.model.message import Message, StoredMessage
from millstream.model.operations import PullStatus
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.remoting.bodies import DataVersion
from millstream.transport.remoting_server import RemotingServer
from patience import eventually, within_patience
from servers import Servers, running_servers


@pytest_asyncio.fixture
async def client(servers: Servers) -> AsyncIterator[Client]:
    async with Client(servers.nameserver) as opened:
        await opened.create_topic(TopicConfig("t"))
        yield opened


async def stored(client: Client, topic: str = "t") -> dict[int, list[StoredMessage]]:
    """All messages of a topic by queue."""
    puller = Puller(client)
    found: dict[int, list[StoredMessage]] = {}
    for item in await client.queue_ranges(topic):
        batches = puller.read(item.queue, item.range.min_offset, item.range.max_offset)
        found[item.range.queue_id] = [message async for batch in batches for message in batch.messages(verify=True)]
    return found


async def test_a_message_arrives_with_all_that_was_said_of_it(client: Client) -> None:
    message = Message("t", b"body", tag="blue", keys=("k1", "k2"), user_properties={"colour": "blau ü"})
    sent = await Producer(client).send(message)
    [read] = (await stored(client))[sent.queue.queue_id]
    assert (read.body, read.tag, read.keys, read.user_properties) == (
        b"body",
        "blue",
        ("k1", "k2"),
        {"colour": "blau ü"},
    )
    assert (read.message_id, read.queue_offset, read.properties["WAIT"]) == (sent.message_id, sent.queue_offset, "true")
    assert int(sent.offset_message_id[16:], 16) == read.log_offset
    assert abs(read.store_timestamp_ms - time.time() * 1000) < 60_000


async def test_queues_are_taken_in_turn(client: Client) -> None:
    producer = Producer(client)
    taken = [(await producer.send(Message("t", b"x"))).queue.queue_id for _ in range(8)]
    assert sorted(taken[:4]) == [0, 1, 2, 3]
    assert taken[4:] == taken[:4]


async def test_messages_of_a_group_share_a_queue_in_single_and_batch_sends(client: Client) -> None:
    await client.create_topic(TopicConfig("fifo", MessageType.FIFO))
    producer = Producer(client)
    messages = [Message("fifo", b"%d" % n, message_group=f"group{n % 5}") for n in range(50)]
    singly = [await producer.send(message) for message in messages[:25]]
    at_once = await producer.send_many(messages[25:])
    queues: dict[str | None, set[int]] = {}
    for message, sent in zip(messages, singly + at_once, strict=True):
        queues.setdefault(message.message_group, set()).add(sent.queue.queue_id)
    assert all(len(found) == 1 for found in queues.values())
    assert len(set.union(*queues.values())) > 1


async def test_many_messages_keep_their_order_in_each_queue_and_their_receipts(client: Client) -> None:
    bodies = [b"%06d" % n for n in range(5000)]
    receipts = await Producer(client).send_many([Message("t", body) for body in bodies])
    by_queue = await stored(client)
    assert sorted(message.body for messages in by_queue.values() for message in messages) == bodies
    assert all([m.body for m in messages] == sorted(m.body for m in messages) for messages in by_queue.values())
    assert {len(messages) for messages in by_queue.values()} == {1250}
    for body, receipt in zip(bodies, receipts, strict=True):
        read = by_queue[receipt.queue.queue_id][receipt.queue_offset]
        assert (read.body, read.message_id) == (body, receipt.message_id)


async def test_ordered_sends_are_stored_in_the_order_of_the_messages_across_queues(client: Client) -> None:
    bodies = [b"%06d" % n for n in range(5000)]
    await Producer(client).send_many([Message("t", body) for body in bodies], ordered=True)
    by_queue = await stored(client)
    everything = [message for messages in by_queue.values() for message in messages]
    assert [message.body for message in sorted(everything, key=lambda message: message.log_offset)] == bodies
    times = [message.store_timestamp_ms for message in sorted(everything, key=lambda message: message.body)]
    assert times == sorted(times)
    assert all(by_queue.values())


async def test_messages_of_several_topics_are_sent_together(client: Client) -> None:
    await client.create_topic(TopicConfig("u", read_queues=1, write_queues=1))
    messages = [Message("tu"[n % 2], b"%d" % n) for n in range(10)]
    for ordered in (False, True):
        receipts = await Producer(client).send_many(messages, ordered=ordered)
        assert [receipt.queue.topic for receipt in receipts] == [message.topic for message in messages]


async def test_bodies_too_large_to_share_a_request_are_sent_alone(client: Client) -> None:
    bodies = [bytes([n]) * 700_000 for n in range(5)]
    receipts = await Producer(client).send_many([Message("t", body) for body in bodies], ordered=True)
    assert len(receipts) == 5
    assert sum(len(messages) for messages in (await stored(client)).values()) == 5


async def test_sending_nothing_does_nothing(client: Client) -> None:
    assert await Producer(client).send_many([]) == []


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (Message("nowhere", b"x"), "TOPIC_NOT_FOUND"),
        (Message("t", b""), "BODY_EMPTY"),
        (Message("t", b"x", tag="a|b"), "ILLEGAL_TAG"),
        (Message("t", b"x", user_properties={"TAGS": "x"}), "ILLEGAL_PROPERTY"),
        (Message("t", b"x", user_properties={"a": "x\x02KEYS\x01y"}), "ILLEGAL_PROPERTY"),
        (Message("t", b"x", user_properties={"a": "\ud800"}), "ILLEGAL_PROPERTY"),
        (Message("t", b"x", message_group="g"), "MESSAGE_TYPE_MISMATCH"),
        (Message("readonly", b"x"), "FORBIDDEN"),
    ],
)
async def test_a_refusal_has_the_name_that_the_broker_gave_it(client: Client, message: Message, name: str) -> None:
    await client.create_topic(TopicConfig("readonly", permission=Permission.READ))
    producer = Producer(client)
    with pytest.raises((NameRefused, MessageRefused)) as single:
        await producer.send(message)
    with pytest.raises((NameRefused, MessageRefused)) as many:
        await producer.send_many([message])
    assert (single.value.name, many.value.name) == (name, name)
    # Where the broker knows a better remedy than the catalogue, its sentence ends with it.
    assert single.value.remedy or "millstream topic create NAME --type fifo" in single.value.message


async def test_a_pull_waits_for_a_message(client: Client) -> None:
    [queue, *_] = await client.queues("t")
    pulling = asyncio.ensure_future(Puller(client).pull(queue, 0, wait_ms=20_000))
    producer = Producer(client)
    for _ in range(4):
        await producer.send(Message("t", b"x"))
    batch = await within_patience(pulling)
    assert (batch.status, batch.next_offset, len(batch.messages())) == (PullStatus.FOUND, 1, 1)


async def test_a_pull_says_when_there_is_nothing_and_when_the_offset_is_outside(client: Client) -> None:
    [queue, *_] = await client.queues("t")
    assert (await Puller(client).pull(queue, 0)).status is PullStatus.NOTHING_NEW
    beyond = await Puller(client).pull(queue, 5)
    assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 0)


async def test_a_pull_filters_by_tag(client: Client) -> None:
    [queue, *_] = await client.queues("t")
    await client.create_topic(TopicConfig("one", read_queues=1, write_queues=1))
    await Producer(client).send_many([Message("one", b"%d" % n, tag="ab"[n % 2]) for n in range(6)])
    [queue] = await client.queues("one")
    batch = await Puller(client).pull(queue, 0, filter=parse_tag_filter("b"))
    assert [message.body for message in batch.messages()] == [b"1", b"3", b"5"]


async def test_reading_a_range_that_is_not_there_is_refused(client: Client) -> None:
    [queue, *_] = await client.queues("t")
    with pytest.raises(ConsumeRefused, match="0 to 0") as refused:
        async for _ in Puller(client).read(queue, 0, 3):
            pass
    assert refused.value.name == "ILLEGAL_OFFSET"


async def test_reading_a_range_ends_exactly_at_its_end(client: Client) -> None:
    await client.create_topic(TopicConfig("one", read_queues=1, write_queues=1))
    await Producer(client).send_many([Message("one", b"%03d" % n) for n in range(300)])
    [queue] = await client.queues("one")
    batches = [batch async for batch in Puller(client).read(queue, 10, 290, max_bytes=5000)]
    assert len(batches) > 1
    assert [m.body for batch in batches for m in batch.messages()] == [b"%03d" % n for n in range(10, 290)]
    assert all(isinstance(record, memoryview) for record in batches[0].records())


async def test_offsets_are_found_by_time(client: Client) -> None:
    await client.create_topic(TopicConfig("one", read_queues=1, write_queues=1))
    await Producer(client).send_many([Message("one", b"%d" % n) for n in range(10)])
    [queue] = await client.queues("one")
    [message, *_] = (await stored(client, "one"))[0]
    assert await client.offset_by_time(queue, message.store_timestamp_ms) == 0
    assert await client.offset_by_time(queue, message.store_timestamp_ms + 3_600_000) == 10


async def test_topics_and_groups_are_administered(client: Client) -> None:
    config = TopicConfig("orders", MessageType.FIFO, 2, 2)
    await client.create_topic(config)
    await client.create_topic(config)
    assert await client.describe_topic("orders") == config
    assert [topic.name for topic in await client.topics()] == ["orders", "t"]
    with pytest.raises(NameRefused) as refused:
        await client.create_topic(TopicConfig("orders"))
    assert refused.value.name == "TOPIC_EXISTS"
    await client.delete_topic("orders")
    for call in (client.route, client.queue_ranges, client.delete_topic, client.describe_topic):
        with pytest.raises(NameRefused) as refused:
            await call("orders")
        assert refused.value.name == "TOPIC_NOT_FOUND"
    group = GroupConfig("workers", max_attempts=3)
    await client.create_group(group)
    assert group in await client.groups()
    await client.delete_group("workers")
    with pytest.raises(NameRefused) as refused:
        await client.delete_group("workers")
    assert refused.value.name == "GROUP_NOT_FOUND"


async def test_a_groups_offset_is_none_until_it_is_committed(client: Client) -> None:
    [queue, *_] = await client.queues("t")
    assert await client.query_offset("workers", queue) is None
    await client.commit_offset("workers", queue, 0)
    assert await client.query_offset("workers", queue) == 0


async def test_a_topic_that_was_made_again_is_found_after_the_old_route_failed(
    client: Client, servers: Servers
) -> None:
    await client.queues("t")
    servers.broker.topics.delete("t")
    with pytest.raises(NameRefused):
        await Producer(client).send(Message("t", b"x"))
    servers.broker.topics.create(TopicConfig("t", read_queues=1, write_queues=1))
    assert (await Producer(client).send(Message("t", b"x"))).queue.queue_id == 0
    assert len(await client.queues("t")) == 1


async def test_a_nameserver_that_is_not_there_is_passed_over_and_asked_last(servers: Servers) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{unused.getsockname()[1]}"
        async with Client(f"{gone};{servers.nameserver}") as client:
            assert await client.topics() == []
        async with Client(gone) as client:
            with pytest.raises(Unreachable, match=gone) as failed:
                await client.topics()
        assert "quickstart" in failed.value.remedy


async def test_a_broker_that_is_gone_is_unreachable_after_the_retries(client: Client, servers: Servers) -> None:
    producer = Producer(client)
    await producer.send(Message("t", b"x"))
    await servers.broker_server.close()
    with pytest.raises(Unreachable, match=servers.broker_address):
        await producer.send(Message("t", b"x"))


async def test_a_client_finds_a_broker_again_that_came_back_elsewhere(tmp_path: Path) -> None:
    async with running_servers(tmp_path / "a") as first, Client(first.nameserver) as client:
        await client.create_topic(TopicConfig("t"))
        producer = Producer(client)
        await producer.send(Message("t", b"x"))
        await first.broker_server.close()
        async with running_servers(tmp_path / "b") as second:
            second.broker.topics.create(TopicConfig("t"))
            moved = BrokerRegistration("DefaultCluster", "broker-a", second.broker_address, (TopicConfig("t"),))
            first.routes.register(moved, lease_s=math.inf)
            # A send on a connection that is about to be closed is not repeated, since it may have been stored.
            await eventually(lambda: first.broker_address not in client.open_connections())
            sent = await producer.send(Message("t", b"y"))
            assert sent.queue.broker_address == second.broker_address


async def test_a_server_that_does_not_answer_is_timed_out() -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(swallow, "127.0.0.1", 0)
    address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with Client(address, timeout_s=0.05) as client:
        with pytest.raises(TimedOut, match=address):
            await client.topics()
    listening.close()


async def test_a_port_of_another_protocol_is_named() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with Client(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(ConnectionFailed) as failed:
            await client.topics()
    assert failed.value.name == "PROTOCOL_VIOLATION"
    listening.close()


async def test_calls_at_the_same_time_share_one_connection(servers: Servers, client: Client) -> None:
    before = servers.nameserver_server.connections
    async with Client(servers.nameserver) as second:
        await asyncio.gather(*(second.topics() for _ in range(20)))
        assert servers.nameserver_server.connections == before + 1


def test_everything_works_on_uvloop(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def send_and_read() -> list[bytes]:
        async with running_servers(tmp_path / "data") as servers, Client(servers.nameserver) as client:
            await client.create_topic(TopicConfig("t", read_queues=1, write_queues=1))
            await Producer(client).send_many([Message("t", b"%d" % n) for n in range(3)])
            return [message.body for message in (await stored(client))[0]]

    assert uvloop.run(send_and_read()) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("text", ["", "localhost", "host:port", ":9876", "h:0", "h:70000"])
def test_a_nameserver_that_is_no_address_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|nameserver"):
        Client(text)


def test_queue_addresses_sort_by_topic_broker_and_number() -> None:
    queues = [QueueAddress("t", "b", 10, "x"), QueueAddress("t", "b", 2, "x"), QueueAddress("t", "a", 3, "x")]
    assert [(queue.broker_name, queue.queue_id) for queue in sorted(queues)] == [("a", 3), ("b", 2), ("b", 10)]


async def test_producers_and_readers_find_the_master_at_its_new_address(client: Client, servers: Servers) -> None:
    [first, *_] = await client.queues("t")
    producer = Producer(client)
    sent = await producer.send_many([Message("t", b"%d" % number) for number in range(4)])
    await servers.broker_server.close()
    await eventually(lambda: servers.broker_address not in client.open_connections())
    again = RemotingServer(broker_handlers(servers.broker))
    port = await again.start()
    try:
        sending = asyncio.create_task(producer.send(Message("t", b"late")))
        reading = asyncio.create_task(Puller(client).pull(first, 0))
        topics = tuple(servers.broker.topics.all())
        elected = BrokerRegistration(
            servers.broker.cluster, "broker-a", f"127.0.0.1:{port}", topics, data_version=DataVersion(state_version=2)
        )
        servers.routes.register(elected, lease_s=math.inf)
        assert (await within_patience(reading)).status is PullStatus.FOUND
        assert (await within_patience(sending)).queue.broker_address == f"127.0.0.1:{port}"
        assert len(sent) == 4
    finally:
        await again.close()
