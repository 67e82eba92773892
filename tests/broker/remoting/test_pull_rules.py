"""Which pulls are answered, with whose filter, and where a group that has no position begins."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from millstream.broker.broker import BrokerOptions
from millstream.broker.static_topics import queue_router
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.message import Address, OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from servers import SMALL_STORE, Servers, running_servers

PULL = {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "0"}


async def connect(servers: Servers) -> RemotingConnection:
    host, _, port = servers.broker_address.rpartition(":")
    return await RemotingConnection.open(Address(host, int(port)))


@pytest_asyncio.fixture
async def connection(servers: Servers) -> AsyncIterator[RemotingConnection]:
    servers.broker.topics.create(TopicConfig("t", read_queues=1, write_queues=1))
    opened = await connect(servers)
    yield opened
    await opened.close()


async def ask(connection: RemotingConnection, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
    return await connection.request(RemotingCommand(code, ext, body), 5)


async def beat(connection: RemotingConnection, version: int, topic: str = "t", **more: object) -> RemotingCommand:
    subscription = {"topic": topic, "subString": "a", "subVersion": version, "expressionType": "TAG"}
    consumer = {"groupName": "g", "subscriptionDataSet": [subscription], **more}
    return await ask(connection, 34, {}, json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode())


async def test_a_pull_with_a_newer_subscription_than_the_brokers_waits_for_the_heartbeat(
    connection: RemotingConnection,
) -> None:
    assert (await ask(connection, 11, PULL)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await beat(connection, 7)
    assert (await ask(connection, 11, {**PULL, "subVersion": "7"})).code == ResponseCode.PULL_NOT_FOUND
    assert (await ask(connection, 11, {**PULL, "subVersion": "6"})).code == ResponseCode.PULL_NOT_FOUND
    assert (await ask(connection, 11, {**PULL, "subVersion": "8"})).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    carried = {**PULL, "subVersion": "8", "sysFlag": "4", "subscription": "b"}
    assert (await ask(connection, 11, carried)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_group_wants_all_of_its_own_retry_topic_and_nothing_of_anothers(connection: RemotingConnection) -> None:
    await beat(connection, 7)
    own = {**PULL, "topic": "%RETRY%g", "subVersion": "99"}
    assert (await ask(connection, 11, own)).code == ResponseCode.PULL_NOT_FOUND
    assert (await ask(connection, 11, {**own, "consumerGroup": "h"})).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_group_that_is_switched_off_or_may_not_be_made_is_told_first(tmp_path: Path) -> None:
    options = BrokerOptions(store=SMALL_STORE, auto_create_groups=False)
    async with running_servers(tmp_path / "data", options=options) as servers:
        connection = await connect(servers)
        servers.broker.topics.create(TopicConfig("t"))
        assert (await ask(connection, 11, PULL)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        servers.broker.groups.create(GroupConfig("g", enabled=False))
        assert (await ask(connection, 11, PULL)).code == ResponseCode.NO_PERMISSION
        await connection.close()


async def position(connection: RemotingConnection, topic: str = "t", **more: str) -> str | None:
    answer = await ask(connection, 14, {"consumerGroup": "g", "topic": topic, "queueId": "0", **more})
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    return answer.ext.get("offset")


async def test_a_new_group_replays_a_young_queue_and_chooses_itself_in_an_old_one(
    connection: RemotingConnection, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_router, "YOUNG_BYTES", 2000)
    assert await position(connection) == "0"
    await servers.broker.delivery.send([OutgoingMessage("t", b"x" * 500, {}, queue_id=0)])
    assert await position(connection) == "0"
    await servers.broker.delivery.send([OutgoingMessage("t", b"x" * 2000, {}, queue_id=0)])
    assert await position(connection) is None


async def test_a_new_group_begins_its_retry_topic_at_the_first_message_whatever_it_wants_elsewhere(
    connection: RemotingConnection, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.broker.groups.create(GroupConfig("g", first_position=FirstPosition.LAST))
    await beat(connection, 1)
    for topic in ("t", "%RETRY%g"):
        await servers.broker.delivery.send([OutgoingMessage(topic, b"x", {}, queue_id=0)])
    monkeypatch.setattr(queue_router, "YOUNG_BYTES", 0)
    assert await position(connection, "%RETRY%g") == "0"
    assert await position(connection, "t") == "1"


async def test_the_time_of_a_queues_first_message_is_told(connection: RemotingConnection, servers: Servers) -> None:
    where = {"topic": "t", "queueId": "0"}
    assert (await ask(connection, 32, where)).ext == {"timestamp": "-1"}
    [receipt] = await servers.broker.delivery.send([OutgoingMessage("t", b"x", {}, queue_id=0)])
    await servers.broker.delivery.send([OutgoingMessage("t", b"y", {}, queue_id=0)])
    assert (await ask(connection, 32, where)).ext == {"timestamp": str(receipt.store_timestamp_ms)}
    assert (await ask(connection, 32, {**where, "queueId": "9"})).code == ResponseCode.INVALID_PARAMETER
    assert (await ask(connection, 32, {**where, "topic": "none"})).code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_positions_of_all_groups_are_told(servers: Servers, connection: RemotingConnection) -> None:
    await servers.broker.delivery.send([OutgoingMessage("t", b"x", {}, queue_id=0) for _ in range(4)])
    for group, offset in (("g", "3"), ("h", "4"), ("g", "-1")):
        ext = {"consumerGroup": group, "topic": "t", "queueId": "0", "commitOffset": offset}
        assert (await ask(connection, 15, ext)).code == 0
    told = json.loads((await ask(connection, 43, {})).body)
    assert told["offsetTable"] == {"t@g": {"0": 3}, "t@h": {"0": 4}}
    assert told["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}


async def test_a_pull_is_answered_whatever_nonsense_it_commits(
    servers: Servers, connection: RemotingConnection
) -> None:
    await servers.broker.delivery.send([OutgoingMessage("t", b"x", {}, queue_id=0)])
    ext = {**PULL, "sysFlag": "5", "subscription": "*", "commitOffset": str((1 << 63) - 1)}
    assert (await ask(connection, 11, ext)).code == ResponseCode.SUCCESS
    assert servers.broker.queues.committed_offset("g", "t", 0) is None
    place = {"consumerGroup": "g", "topic": "t", "queueId": "0"}
    answer = await ask(connection, 15, {**place, "commitOffset": str((1 << 63) - 1)})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "0 to 1; 9223372036854775807 is outside" in (answer.remark or "")
