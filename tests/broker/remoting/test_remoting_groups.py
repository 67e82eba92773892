"""Administering groups over a real connection, in the form of RocketMQ's tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest_asyncio

from millstream.model.filter import ALL
from millstream.model.group import GroupConfig
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import PopRequest
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.consumption import decode_consume_statistics
from millstream.protocol.remoting.administration.settings import decode_group
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import read_fastjson
from millstream.transport.remoting_client import RemotingConnection
from servers import Servers


@pytest_asyncio.fixture
async def connection(servers: Servers) -> AsyncIterator[RemotingConnection]:
    host, _, port = servers.broker_address.rpartition(":")
    opened = await RemotingConnection.open(Address(host, int(port)))
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def received(servers: Servers) -> Servers:
    """A group `g` that has received the first three of five messages and acknowledged nothing."""
    servers.broker.topics.create(TopicConfig("t", read_queues=1, write_queues=1))
    await servers.broker.delivery.send([OutgoingMessage("t", b"%d" % number, {}, queue_id=0) for number in range(5)])
    await servers.broker.delivery.pop(PopRequest("g", "t", 60_000, max_messages=3, filter=ALL))
    return servers


async def ask(connection: RemotingConnection, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
    return await connection.request(RemotingCommand(code, ext, body), 5)


async def test_a_group_is_told_alone_and_an_unknown_one_is_refused(
    connection: RemotingConnection, servers: Servers
) -> None:
    config = GroupConfig("workers", max_attempts=3)
    servers.broker.groups.create(config)
    assert decode_group((await ask(connection, 352, group="workers")).body) == config
    assert (await ask(connection, 352, group="nobody")).code == 26


async def test_progress_is_told_in_the_fields_of_rocketmq_and_our_own(
    connection: RemotingConnection, received: Servers
) -> None:
    body = (await ask(connection, 208, consumerGroup="g")).body
    [(queue, held)] = read_fastjson(body)["offsetTable"].items()
    assert dict(queue) == {"brokerName": "broker-a", "queueId": 0, "topic": "t"}
    assert (held["brokerOffset"], held["consumerOffset"], held["pullOffset"]) == (5, 0, 3)
    [item] = decode_consume_statistics(body)
    assert (item.broker_name, item.progress.ready, item.progress.in_flight) == ("broker-a", 2, 3)
    assert (await ask(connection, 208, consumerGroup="g", topic="t")).body == body
    assert (await ask(connection, 208, consumerGroup="nobody")).code == 26
    assert (await ask(connection, 208, consumerGroup="g", topic="nowhere")).code == 17


def test_progress_of_a_broker_that_tells_rocketmqs_fields_only_is_read() -> None:
    [item] = decode_consume_statistics(
        b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:'
        b'{"brokerOffset":9,"consumerOffset":4,"pullOffset":6,"lastTimestamp":7}}}'
    )
    held = item.progress
    assert (held.queue_id, held.committed, held.ready, held.in_flight, held.consumed_ms) == (3, 4, 3, 2, 7)


async def test_a_reset_by_offset_by_time_and_to_the_end_answers_where_the_queues_are(
    connection: RemotingConnection, received: Servers
) -> None:
    async def reset(**ext: str) -> int:
        answer = await ask(connection, 222, topic="t", group="g", **ext)
        [(_, offset)] = read_fastjson(answer.body)["offsetTable"].items()
        assert received.broker.queues.committed_offset("g", "t", 0) == offset
        return int(offset)

    assert await reset(timestamp="0", isForce="true", queueId="0", offset="2") == 2
    assert await reset(timestamp="-1", isForce="true") == 5
    assert await reset(timestamp="0", isForce="true") == 0
    assert await reset(timestamp="-1") == 5
    assert await reset(timestamp="0", isForce="false") == 0
    assert (await ask(connection, 222, topic="t", group="g", timestamp="0", queueId="0", offset="6")).code == 29
    assert (await ask(connection, 222, topic="t", group="nobody", timestamp="0")).code == 26


async def test_who_reads_a_topic_and_what_a_group_reads_are_told(
    connection: RemotingConnection, received: Servers
) -> None:
    assert json.loads((await ask(connection, 300, topic="t")).body) == {"groupList": ["g"]}
    assert json.loads((await ask(connection, 343, group="g")).body)["topicList"] == ["t"]
    assert (await ask(connection, 300, topic="nowhere")).code == 17
    assert (await ask(connection, 343, group="nobody")).code == 26


async def test_members_are_told_with_their_address_and_subscriptions_and_those_of_a_proxy_too(
    connection: RemotingConnection, servers: Servers
) -> None:
    assert (await ask(connection, 203, consumerGroup="g")).code == 206
    subscription = {"topic": "t", "subString": "a", "subVersion": 1, "expressionType": "TAG"}
    consumer = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": [subscription]}
    await ask(connection, 34, json.dumps({"clientID": "c1", "consumerDataSet": [consumer]}).encode())
    servers.broker.groups.member_sources.append(lambda group: [(f"p-{group}", "", "OTHER", 0, "gRPC PUSH_CONSUMER")])
    told = json.loads((await ask(connection, 203, consumerGroup="g")).body)
    first, second = told["connectionSet"]
    assert (first["clientId"], first["clientAddr"].partition(":")[0], first["protocol"]) == (
        "c1",
        "127.0.0.1",
        "remoting",
    )
    assert (second["clientId"], second["protocol"]) == ("p-g", "gRPC PUSH_CONSUMER")
    assert told["subscriptionTable"]["t"]["subString"] == "a"
    assert told["consumeType"] == "CONSUME_PASSIVELY"


async def test_a_group_that_begins_at_the_end_keeps_the_place_that_a_reader_was_told(
    connection: RemotingConnection, servers: Servers
) -> None:
    servers.broker.topics.create(TopicConfig("t", read_queues=1, write_queues=1))
    await servers.broker.delivery.send([OutgoingMessage("t", b"old", {}, queue_id=0)])
    config = b'{"groupName":"late","attributes":{"consume.first.position":"last"}}'
    assert (await ask(connection, 200, config)).code == 0
    question = {"consumerGroup": "late", "topic": "t", "queueId": "0"}
    assert (await ask(connection, 14, **question, setZeroIfNotFound="false")).code == 22
    assert (await ask(connection, 14, **question)).ext["offset"] == "1"
    await servers.broker.delivery.send([OutgoingMessage("t", b"new", {}, queue_id=0)])
    assert (await ask(connection, 14, **question)).ext["offset"] == "1"
