"""Topics, groups and consumers over a real connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from millstream.broker.remoting.clients import MAX_HEARTBEAT_GROUPS, MEMBER_LIMIT_S, ConsumerRegistry
from millstream.model.group import GroupConfig
from millstream.model.message import Address
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.administration.settings import (
    decode_group_table,
    decode_topic_table,
    encode_group,
    topic_fields,
)
from millstream.protocol.remoting.bodies import ConsumerData, SubscriptionData
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


def heartbeat(
    client_id: str, group: str = "g", topic: str = "t", expression: str = "a", kind: str = "TAG", **more: object
) -> bytes:
    subscription = {"topic": topic, "subString": expression, "subVersion": 1, "expressionType": kind}
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": [subscription]}
    return json.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer], **more}).encode()


async def test_a_topic_is_created_told_routed_and_deleted(connection: RemotingConnection, servers: Servers) -> None:
    config = TopicConfig("orders", MessageType.FIFO, 2, 2)
    assert (await ask(connection, 17, **topic_fields(config))).code == 0
    assert (await ask(connection, 17, **topic_fields(config))).code == 0
    assert decode_topic_table((await ask(connection, 21)).body) == [config]
    assert servers.routes.route("orders") is not None
    assert (await ask(connection, 215, topic="orders")).code == 0
    assert servers.broker.topics.find("orders") is None
    assert servers.routes.route("orders") is None


async def test_a_topic_with_other_settings_is_not_changed(connection: RemotingConnection) -> None:
    await ask(connection, 17, **topic_fields(TopicConfig("orders")))
    assert (await ask(connection, 17, **topic_fields(TopicConfig("orders", MessageType.FIFO)))).code == 18


async def test_a_topic_with_an_illegal_name_is_refused(connection: RemotingConnection) -> None:
    assert (await ask(connection, 17, **topic_fields(TopicConfig("no spaces")))).code == 29


async def test_a_group_is_created_told_and_deleted(connection: RemotingConnection) -> None:
    group = GroupConfig("workers", fifo=True, max_attempts=3, backoff_s=(0, 5))
    assert (await ask(connection, 200, encode_group(group))).code == 0
    assert decode_group_table((await ask(connection, 201)).body) == [group]
    assert (await ask(connection, 200, encode_group(GroupConfig("workers")), createOnly="true")).code == 29
    changed = GroupConfig("workers", max_attempts=9, enabled=False)
    assert (await ask(connection, 200, encode_group(changed))).code == 0
    assert decode_group_table((await ask(connection, 201)).body) == [changed]
    assert (await ask(connection, 207, groupName="workers")).code == 0
    assert decode_group_table((await ask(connection, 201)).body) == []


async def test_a_heartbeat_makes_the_group_its_retry_topic_and_its_route(
    connection: RemotingConnection, servers: Servers
) -> None:
    answer = await ask(connection, 34, heartbeat("c1"))
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    assert servers.broker.groups.find("g") is not None
    assert servers.broker.topics.get("%RETRY%g").queues == 1
    assert servers.routes.route("%RETRY%g") is not None


async def test_a_heartbeat_with_an_illegal_group_serves_its_other_groups(
    connection: RemotingConnection, servers: Servers
) -> None:
    body = json.loads(heartbeat("c1"))
    body["consumerDataSet"].insert(0, {"groupName": "not legal", "subscriptionDataSet": []})
    assert (await ask(connection, 34, json.dumps(body).encode())).code == 0
    assert json.loads((await ask(connection, 38, consumerGroup="g")).body) == {"consumerIdList": ["c1"]}
    assert servers.broker.groups.find("not legal") is None


async def test_consumers_are_listed_until_they_unregister_or_their_connection_closes(
    connection: RemotingConnection, servers: Servers
) -> None:
    other = await RemotingConnection.open(connection.address)
    await ask(connection, 34, heartbeat("c2"))
    await ask(other, 34, heartbeat("c1"))
    assert json.loads((await ask(connection, 38, consumerGroup="g")).body) == {"consumerIdList": ["c1", "c2"]}
    await ask(connection, 35, clientID="c2", consumerGroup="g")
    assert json.loads((await ask(connection, 38, consumerGroup="g")).body) == {"consumerIdList": ["c1"]}
    await other.close()
    while (answer := await ask(connection, 38, consumerGroup="g")).code == 0:
        pass
    assert answer.code == 1


async def test_a_pull_without_a_filter_takes_the_one_of_the_heartbeat(
    connection: RemotingConnection, servers: Servers
) -> None:
    servers.broker.topics.create(TopicConfig("t"))
    await ask(connection, 34, heartbeat("c1"))
    for tag in ("a", "b"):
        ext = {"a": "p", "b": "t", "e": "0", "g": "1", "i": f"TAGS\x01{tag}\x02"}
        assert (await ask(connection, 310, tag.encode(), **ext)).code == 0
    pulled = await ask(
        connection, 11, consumerGroup="g", topic="t", queueId="0", queueOffset="0", maxMsgNums="32", sysFlag="0"
    )
    assert (pulled.code, pulled.ext["nextBeginOffset"]) == (0, "2")
    assert pulled.body.count(b"TAGS\x01") == 1


async def test_a_condition_of_a_heartbeat_holds_for_pulls_without_a_filter(
    connection: RemotingConnection, servers: Servers
) -> None:
    servers.broker.topics.create(TopicConfig("t"))
    await ask(connection, 34, heartbeat("c1", expression="price > 10", kind="SQL92"))
    for price in ("5", "15"):
        ext = {"a": "p", "b": "t", "e": "0", "g": "1", "i": f"price\x01{price}\x02"}
        assert (await ask(connection, 310, price.encode(), **ext)).code == 0
    pull = {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "0"}
    pulled = await ask(connection, 11, **pull)
    assert (pulled.code, pulled.ext["nextBeginOffset"]) == (0, "2")
    assert [decode_record(record).body for record in iterate_records(pulled.body)] == [b"15"]
    await ask(connection, 34, heartbeat("c1", expression="price >", kind="SQL92"))
    assert (await ask(connection, 11, **pull)).code == 23


@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [("a > 5", "SQL92", 0), ("a >", "SQL92", 23), ("x || y", "TAG", 0), ("*", None, 0), ("*", "LUA", 23)],
)
async def test_a_client_learns_before_it_starts_whether_its_filter_can_be_read(
    connection: RemotingConnection, expression: str, kind: str | None, code: int
) -> None:
    subscription = {"topic": "t", "subString": expression, "subVersion": 1, "expressionType": kind, "tagsSet": []}
    body = {"clientId": "c1", "group": "g", "subscriptionData": subscription, "namespace": None}
    assert (await ask(connection, 46, json.dumps(body).encode())).code == code


async def test_a_check_without_a_subscription_is_malformed(connection: RemotingConnection) -> None:
    assert (await ask(connection, 46, b'{"clientId": "c1"}')).code == 13


async def test_a_short_heartbeat_refreshes_what_is_known_and_asks_for_the_rest(connection: RemotingConnection) -> None:
    short = heartbeat("c1", heartbeatFingerprint=7, withoutSub=True)
    assert (await ask(connection, 34, short)).ext["IS_SUB_CHANGE"] == "true"
    await ask(connection, 34, heartbeat("c1", heartbeatFingerprint=7))
    assert (await ask(connection, 34, short)).ext["IS_SUB_CHANGE"] == "false"
    changed = heartbeat("c1", heartbeatFingerprint=8, withoutSub=True)
    assert (await ask(connection, 34, changed)).ext["IS_SUB_CHANGE"] == "true"


async def test_a_heartbeat_of_too_many_groups_is_refused_and_creates_none(
    connection: RemotingConnection, servers: Servers
) -> None:
    body = json.loads(heartbeat("c1"))
    body["consumerDataSet"] = [{"groupName": f"g{n}"} for n in range(MAX_HEARTBEAT_GROUPS + 1)]
    assert (await ask(connection, 34, json.dumps(body).encode())).code == 2
    assert servers.broker.groups.all() == []


async def test_a_heartbeat_that_cannot_be_read_is_refused(connection: RemotingConnection) -> None:
    assert (await ask(connection, 34, b"beat")).code == 13


class Ear:
    """Stands for a connection and keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[RemotingCommand] = []
        self.send: Callable[[RemotingCommand], None] = self.told.append


def consumer(*topics: str, version: int = 1) -> ConsumerData:
    return ConsumerData("g", subscription_data_set=[SubscriptionData(topic, "*", version) for topic in topics])


def test_members_are_told_when_others_come_change_and_go_and_only_then() -> None:
    registry, first, second = ConsumerRegistry(), Ear(), Ear()
    registry.hear("c1", consumer("t"), first, 0, 0.0)  # type: ignore[arg-type]
    registry.hear("c2", consumer("t"), second, 0, 0.0)  # type: ignore[arg-type]
    assert {(notice.code, notice.ext["consumerGroup"], notice.is_oneway) for notice in first.told} == {(40, "g", True)}
    assert (len(first.told), len(second.told)) == (2, 1)
    registry.hear("c2", consumer("t"), second, 0, 1.0)  # type: ignore[arg-type]
    assert (len(first.told), len(second.told)) == (2, 1)
    registry.hear("c2", consumer("t", "u"), second, 0, 2.0)  # type: ignore[arg-type]
    assert (len(first.told), len(second.told)) == (3, 2)
    registry.connection_closed(second)  # type: ignore[arg-type]
    assert (len(first.told), len(second.told)) == (4, 2)


def test_a_consumer_expires_when_it_falls_silent() -> None:
    registry, first, second = ConsumerRegistry(), Ear(), Ear()
    registry.hear("c1", consumer("t"), first, 5, 0.0)  # type: ignore[arg-type]
    registry.hear("c2", consumer("t"), second, 5, 0.0)  # type: ignore[arg-type]
    assert registry.refresh("c2", "g", second, 5, 60.0)  # type: ignore[arg-type]
    assert not registry.refresh("c2", "g", first, 5, 60.0)  # type: ignore[arg-type]
    registry.expire(MEMBER_LIMIT_S + 1)
    assert registry.clients("g") == ["c2"]


def test_the_latest_subscription_of_a_group_counts() -> None:
    registry = ConsumerRegistry()
    registry.hear("c1", consumer("t", version=5), Ear(), 0, 0.0)  # type: ignore[arg-type]
    registry.hear("c2", consumer("t", version=9), Ear(), 0, 0.0)  # type: ignore[arg-type]
    found = registry.subscription("g", "t")
    assert found is not None
    assert found.sub_version == 9
    assert registry.subscription("g", "u") is None
    assert registry.subscription("h", "t") is None
