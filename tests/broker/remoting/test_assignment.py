"""Requests 400 and 401 over real connections: a broker shares queues among the members that it knows."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker_cluster import running_cluster
from millstream.broker.static_topics.peers import Peers
from millstream.client.client import Client
from millstream.client.static_topics import StaticTopicOperations
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.message import Address
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.static_topics import LOGIC_BROKER_NAME
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_server import RemotingServer
from servers import Servers


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[RemotingConnection]:
    opened = await RemotingConnection.open(address)
    try:
        yield opened
    finally:
        await opened.close()


@pytest_asyncio.fixture
async def connection(servers: Servers) -> AsyncIterator[RemotingConnection]:
    servers.broker.topics.create(TopicConfig("t", read_queues=8, write_queues=8))
    async with connected(servers.broker.advertised) as opened:
        yield opened


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


async def test_queues_of_other_brokers_are_shared_as_well_also_while_no_nameserver_answers(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, ["broker-a", "broker-b"]) as cluster:
        for name, queues in (("broker-a", 2), ("broker-b", 1)):
            cluster.brokers[name].topics.create(TopicConfig("t", read_queues=queues, write_queues=queues))
        async with connected(cluster.brokers["broker-a"].advertised) as connection:
            await join(connection, "one", "two")
            assert await assigned(connection, "two") == [("broker-b", 0, "PULL")]
            assert await assigned(connection, "two", topic="none") is None
            await set_mode(connection)
            cluster.routes.unregister("broker-b")
            assert await assigned(connection, "one") == [("broker-a", -1, "POP")]


async def test_the_last_route_is_kept_while_no_nameserver_answers() -> None:
    routes = RouteRegistry()
    nameserver = RemotingServer(nameserver_handlers(routes))
    port = await nameserver.start()
    routes.register(BrokerRegistration("c", "b", "127.0.0.1:1", (TopicConfig("t", read_queues=3),)), lease_s=math.inf)
    peers = Peers([f"127.0.0.1:{port}"], timeout_s=5)
    known = await peers.route("t")
    await nameserver.close()
    assert known is not None
    assert known.queue_datas[0].read_queue_nums == 3
    assert await peers.route("t") == known
    assert await peers.route("other") is None
    await peers.close()


async def test_members_share_the_queues_of_a_static_topic_wherever_they_lie(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, ["broker-a", "broker-b"]) as cluster:
        async with Client(cluster.nameserver) as client:
            await client.run(StaticTopicOperations(client.conversations).create(TopicConfig("t"), 4))
        async with connected(cluster.brokers["broker-a"].advertised) as connection:
            await join(connection, "one", "two")
            assert await assigned(connection, "two") == [(LOGIC_BROKER_NAME, number, "PULL") for number in (2, 3)]
            await set_mode(connection)
            assert await assigned(connection, "two") == [("broker-a", -1, "POP"), ("broker-b", -1, "POP")]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "%RETRY%g"}, ResponseCode.INVALID_PARAMETER),
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
