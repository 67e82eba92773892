"""Requests 400 and 401 over real connections: a broker shares queues among the members that it knows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from millstream.broker.allocation import QueuePlace
from millstream.broker.remoting import broker_handlers
from millstream.model.message import Address
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from servers import Servers


@pytest_asyncio.fixture
async def connection(servers: Servers) -> AsyncIterator[RemotingConnection]:
    servers.broker.topics.create(TopicConfig("t", read_queues=8, write_queues=8))
    host, _, port = servers.broker_address.rpartition(":")
    opened = await RemotingConnection.open(Address(host, int(port)))
    yield opened
    await opened.close()


async def ask(connection: RemotingConnection, code: int, body: dict[str, Any]) -> RemotingCommand:
    return await connection.request(RemotingCommand(code, {}, json.dumps(body).encode()), 5)


async def join(connection: RemotingConnection, *clients: str) -> None:
    for client in clients:
        consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "t", "subString": "*"}]}
        assert (await ask(connection, 34, {"clientID": client, "consumerDataSet": [consumer]})).code == 0


async def assigned(connection: RemotingConnection, client: str, **more: str) -> list[tuple[str, int, str]] | None:
    asked = {"topic": "t", "consumerGroup": "g", "clientId": client, "strategyName": "AVG", **more}
    answer = await ask(connection, RequestCode.QUERY_ASSIGNMENT, {"messageModel": "CLUSTERING", **asked})
    assert answer.code == ResponseCode.SUCCESS
    found = json.loads(answer.body).get("messageQueueAssignments")
    if found is None:
        return None
    assert all(each["messageQueue"]["topic"] == asked["topic"] for each in found)
    return [(each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"], each["mode"]) for each in found]


async def set_mode(connection: RemotingConnection, **more: Any) -> RemotingCommand:
    body = {"topic": "t", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0, **more}
    return await ask(connection, RequestCode.SET_MESSAGE_REQUEST_MODE, body)


async def test_members_that_pull_share_the_queues(connection: RemotingConnection) -> None:
    await join(connection, "one", "two")
    assert await assigned(connection, "one") == [("broker-a", number, "PULL") for number in range(4)]
    assert await assigned(connection, "two", strategyName="AVG_BY_CIRCLE") == [
        ("broker-a", number, "PULL") for number in (1, 3, 5, 7)
    ]
    assert len(await assigned(connection, "one", messageModel="BROADCASTING") or ()) == 8


async def test_members_that_pop_take_from_all_queues_of_the_broker(connection: RemotingConnection) -> None:
    await join(connection, "a", "b", "c", "d")
    assert (await set_mode(connection)).code == ResponseCode.SUCCESS
    assert await assigned(connection, "b") == [("broker-a", -1, "POP")]
    assert (await set_mode(connection, popShareQueueNum=1)).code == ResponseCode.SUCCESS
    assert await assigned(connection, "b") == [("broker-a", number, "POP") for number in (2, 3, 4, 5)]


async def test_who_is_not_known_keeps_the_queues_that_it_has(connection: RemotingConnection) -> None:
    await join(connection, "one")
    assert await assigned(connection, "stranger") is None
    assert await assigned(connection, "one", strategyName="MOON") is None
    assert await assigned(connection, "one", topic="none") is None


async def test_queues_of_other_brokers_are_shared_as_well(servers: Servers, connection: RemotingConnection) -> None:
    async def everywhere(topic: str) -> list[QueuePlace]:
        return [QueuePlace("broker-b", 0), QueuePlace("broker-a", 0), QueuePlace("broker-a", 1)]

    servers.broker_server.handlers = broker_handlers(servers.broker, queues=everywhere)
    await join(connection, "one", "two")
    assert await assigned(connection, "two") == [("broker-b", 0, "PULL")]
    await set_mode(connection)
    assert await assigned(connection, "two") == [("broker-a", -1, "POP"), ("broker-b", -1, "POP")]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "%RETRY%g"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"mode": "PUSH"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"consumerGroup": "a b"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"popShareQueueNum": "x"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_a_mode_that_means_nothing_is_refused(
    connection: RemotingConnection, wrong: dict[str, str], code: int
) -> None:
    assert (await set_mode(connection, **wrong)).code == code
