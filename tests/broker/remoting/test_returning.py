"""Giving messages back over a real connection: by their place in the log, and as copies that the consumer sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest_asyncio
from pop_client import delivery_fields, pop_fields, taken_of

from millstream.model.group import GroupConfig
from millstream.model.message import Address, OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from servers import Servers


@pytest_asyncio.fixture
async def connection(servers: Servers) -> AsyncIterator[RemotingConnection]:
    host, _, port = servers.broker_address.rpartition(":")
    opened = await RemotingConnection.open(Address(host, int(port)))
    yield opened
    await opened.close()


async def ask(connection: RemotingConnection, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
    return await connection.request(RemotingCommand(code, ext, body), 5)


async def one_message(servers: Servers, topic: str = "t") -> str:
    """A message of a new topic; its place in the log. The group `g` has it again at once."""
    if servers.broker.groups.find("g") is None:
        servers.broker.groups.create(GroupConfig("g", max_attempts=3, backoff_s=(0,)))
    servers.broker.topics.create(TopicConfig(topic, read_queues=1, write_queues=1))
    [receipt] = await servers.broker.delivery.send([OutgoingMessage(topic, topic.encode(), {}, queue_id=0)])
    return str(receipt.log_offset)


async def heartbeat(connection: RemotingConnection, topic: str) -> None:
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {"groupName": "g", "subscriptionDataSet": [subscription]}
    assert (await ask(connection, 34, json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode())).code == 0


async def again(connection: RemotingConnection) -> list[tuple[bytes, int, str]]:
    """Body, count and origin of what is in the group's retry topic."""
    found: list[tuple[bytes, int, str]] = []
    while True:
        ext = {"consumerGroup": "g", "topic": "%RETRY%g", "queueId": "0", "queueOffset": str(len(found))}
        answer = await ask(connection, 11, **ext, maxMsgNums="1", sysFlag="4", subscription="*")
        if answer.code != 0:
            return found
        message = decode_record(answer.body)
        found.append((message.body, message.reconsume_times, message.properties["RETRY_TOPIC"]))


async def test_a_message_is_given_back_by_its_place_and_the_topic_that_it_is_of(
    connection: RemotingConnection, servers: Servers
) -> None:
    offset = await one_message(servers)
    answer = await ask(connection, 36, group="g", offset=offset, delayLevel="0", originTopic="t", originMsgId="x")
    assert (answer.code, answer.remark) == (0, None)
    assert await again(connection) == [(b"t", 1, "t")]


async def test_without_the_topic_a_message_is_given_back_by_those_who_read_it(
    connection: RemotingConnection, servers: Servers
) -> None:
    first, second = await one_message(servers, "t"), await one_message(servers, "u")
    assert (await ask(connection, 36, group="g", offset=first, delayLevel="0")).code == 1
    await heartbeat(connection, "t")
    assert (await ask(connection, 36, group="g", offset=first, delayLevel="0")).code == 0
    assert (await ask(connection, 36, group="g", offset=second, delayLevel="0")).code == 1
    await ask(connection, 15, consumerGroup="g", topic="u", queueId="0", commitOffset="0")
    assert (await ask(connection, 36, group="g", offset=second, delayLevel="0")).code == 0
    assert [topic for _, _, topic in await again(connection)] == ["t", "u"]


async def test_the_limit_of_a_client_counts_unless_it_is_too_old_to_have_one(
    connection: RemotingConnection, servers: Servers
) -> None:
    offset = await one_message(servers)
    ext = {"group": "g", "offset": offset, "delayLevel": "0", "originTopic": "t", "maxReconsumeTimes": "0"}
    assert (await connection.request(RemotingCommand(36, ext, version=120), 5)).code == 0
    assert servers.broker.topics.find("%DLQ%g") is None
    assert (await connection.request(RemotingCommand(36, dict(ext), version=121), 5)).code == 0
    assert servers.broker.maintenance.store.max_offset("%DLQ%g", 0) == 1
    assert len(await again(connection)) == 1


async def test_a_consumer_that_could_not_give_a_message_back_sends_a_copy_itself(
    connection: RemotingConnection, servers: Servers
) -> None:
    await one_message(servers)
    await heartbeat(connection, "t")
    copy = {"a": "p", "b": "%RETRY%g", "e": "0", "g": "1", "i": "RETRY_TOPIC\x01t\x02", "j": "1"}
    answer = await ask(connection, 310, b"t", **copy)
    assert answer.code == 0
    assert {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"} <= answer.ext.keys()
    assert await again(connection) == [(b"t", 1, "t")]
    assert (await ask(connection, 310, b"t", **{**copy, "j": "2", "l": "1"})).code == 0
    assert servers.broker.maintenance.store.max_offset("%DLQ%g", 0) == 1
    long = {
        "producerGroup": "p",
        "topic": "%RETRY%g",
        "queueId": "0",
        "properties": "RETRY_TOPIC\x01t\x02DELAY\x013\x02",
    }
    assert (await ask(connection, 10, b"t", **long, reconsumeTimes="2", maxReconsumeTimes="9")).code == 0
    assert servers.broker.maintenance.timers.pending + servers.broker.maintenance.timers.unscheduled == 1
    assert (await ask(connection, 320, b"", **copy)).code == 13


async def test_a_consumer_that_pops_over_remoting_has_and_acknowledges_what_was_given_back(
    connection: RemotingConnection, servers: Servers
) -> None:
    offset = await one_message(servers)
    assert (await ask(connection, 36, group="g", offset=offset, delayLevel="0", originTopic="t")).code == 0
    await ask(connection, 15, consumerGroup="g", topic="t", queueId="0", commitOffset="1")
    [taken] = taken_of(await ask(connection, 200050, **pop_fields()))
    assert (taken.body, taken.reconsume_times) == ("t", 1)
    assert taken.extra_info.split(" ")[4] == "1"
    # The client names the retry topic that RocketMQ would have for it.
    assert (await ask(connection, 200051, **delivery_fields(taken, "%RETRY%g_t"))).code == 0
    ledger = servers.broker._offsets.ledger("g", "%RETRY%g+t", 0)
    assert ledger is not None
    assert (ledger.committed, ledger.is_idle) == (1, True)
