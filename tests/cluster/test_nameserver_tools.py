"""What admin tools ask of a nameserver, over a real connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from millstream.cluster.nameserver import LEASE_S, BrokerRegistration, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.clock import ManualClock
from millstream.model.message import Address
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.remoting.bodies import DataVersion
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_server import RemotingServer

WHO = {"brokerName": "b", "brokerAddr": "h:10911", "clusterName": "c", "brokerId": "0"}


class Nameserver:
    """A nameserver that knows broker b of cluster c with the topics t and u, and a replica of it."""

    def __init__(self, connection: RemotingConnection, registry: RouteRegistry, clock: ManualClock) -> None:
        self._connection = connection
        self.registry = registry
        self.clock = clock

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
        return await self._connection.request(RemotingCommand(code, ext, body), 5)

    async def told(self, code: int, **ext: str) -> Any:
        return json.loads((await self.ask(code, **ext)).body)


@pytest_asyncio.fixture
async def nameserver() -> AsyncIterator[Nameserver]:
    clock, registry = ManualClock(), RouteRegistry()
    topics = (TopicConfig("t", read_queues=2, write_queues=3), TopicConfig("u", permission=Permission.READ))
    version = DataVersion(3, 1000)
    registry.register(BrokerRegistration("c", "b", "h:10911", topics, data_version=version), clock.monotonic_s())
    registry.register(BrokerRegistration("c", "b", "h:10912", (), 1), clock.monotonic_s())
    server = RemotingServer(nameserver_handlers(registry, clock=clock))
    opened = await RemotingConnection.open(Address("127.0.0.1", await server.start()))
    yield Nameserver(opened, registry, clock)
    await opened.close()
    await server.close()


async def test_a_value_is_kept_told_listed_and_deleted(nameserver: Nameserver) -> None:
    where = {"namespace": "n", "key": "k"}
    assert (await nameserver.ask(101, **where)).code == 22
    assert (await nameserver.ask(100, **where, value="v=1;ü")).code == 0
    assert (await nameserver.ask(101, **where)).ext["value"] == "v=1;ü"
    assert await nameserver.told(219, namespace="n") == {"table": {"k": "v=1;ü"}}
    assert (await nameserver.ask(102, **where)).code == 0
    assert (await nameserver.ask(219, namespace="n")).code == 22


async def test_the_order_of_a_topics_queues_is_told_in_its_route_and_to_brokers(nameserver: Nameserver) -> None:
    assert (await nameserver.told(105, topic="t"))["orderTopicConf"] is None
    await nameserver.ask(100, namespace="ORDER_TOPIC_CONFIG", key="t", value="b:3")
    assert (await nameserver.told(105, topic="t"))["orderTopicConf"] == "b:3"
    assert await nameserver.told(103, **WHO) == {"table": {"t": "b:3"}}


async def test_wiped_permission_to_write_stays_away_until_it_is_added_again(nameserver: Nameserver) -> None:
    assert (await nameserver.ask(205, brokerName="b")).ext["wipeTopicCount"] == "2"
    nameserver.registry.update_topic("b", "t", TopicConfig("t", read_queues=9))
    queues = (await nameserver.told(105, topic="t"))["queueDatas"][0]
    assert (queues["perm"], queues["readQueueNums"]) == (4, 9)
    assert (await nameserver.ask(327, brokerName="b")).ext["addTopicCount"] == "2"
    assert (await nameserver.told(105, topic="t"))["queueDatas"][0]["perm"] == 6
    assert (await nameserver.told(105, topic="u"))["queueDatas"][0]["perm"] == 4
    assert (await nameserver.ask(205, brokerName="nobody")).ext["wipeTopicCount"] == "0"


async def test_topics_are_told_by_cluster_and_names_of_clusters_and_brokers_as_the_systems(
    nameserver: Nameserver,
) -> None:
    assert (await nameserver.told(224, cluster="c"))["topicList"] == ["t", "u"]
    assert (await nameserver.told(224, cluster="d"))["topicList"] == []
    assert await nameserver.told(304) == {"topicList": ["b", "c"], "brokerAddr": "h:10911"}


async def test_the_retry_topic_of_any_group_leads_to_all_brokers(nameserver: Nameserver) -> None:
    route = await nameserver.told(105, topic="%RETRY%nobody")
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "h:10911", "1": "h:10912"}
    assert (route["queueDatas"][0]["readQueueNums"], route["queueDatas"][0]["perm"]) == (1, 6)
    nameserver.registry.update_topic("b", "%RETRY%known", TopicConfig("%RETRY%known", read_queues=3))
    assert (await nameserver.told(105, topic="%RETRY%known"))["queueDatas"][0]["readQueueNums"] == 3
    nameserver.registry.unregister("b", 0)
    nameserver.registry.unregister("b", 1)
    assert (await nameserver.ask(105, topic="%RETRY%nobody")).code == 17


async def test_a_topic_registered_by_a_tool_is_in_routes(nameserver: Nameserver) -> None:
    body = json.dumps({"queueDatas": [{"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]})
    assert (await nameserver.ask(217, body.encode(), topic="new")).code == 0
    assert (await nameserver.told(105, topic="new"))["queueDatas"][0]["writeQueueNums"] == 1


async def test_a_broker_that_tells_its_old_version_need_not_register_and_counts_on(nameserver: Nameserver) -> None:
    nameserver.clock.advance_ms(int(LEASE_S * 1000) - 1)
    same = await nameserver.ask(322, b'{"counter":3,"timestamp":1000,"stateVersion":0}', **WHO)
    assert (same.ext["changed"], json.loads(same.body)["counter"]) == ("false", 3)
    nameserver.clock.advance_ms(2)
    assert (await nameserver.ask(105, topic="t")).code == 0
    other = await nameserver.ask(322, b'{"counter":4,"timestamp":1000}', **WHO)
    assert (other.ext["changed"], json.loads(other.body)["counter"]) == ("true", 3)
    unknown = await nameserver.ask(322, b'{"counter":3,"timestamp":1000}', **{**WHO, "brokerName": "x"})
    assert (unknown.ext["changed"], unknown.body) == ("true", b"")


async def test_a_brokers_group_names_its_master_and_its_replicas(nameserver: Nameserver) -> None:
    told = await nameserver.told(901, clusterName="c", brokerName="b")
    assert told["brokerMemberGroup"]["brokerAddrs"] == {"0": "h:10911", "1": "h:10912"}
    assert (await nameserver.told(901, clusterName="c", brokerName="x"))["brokerMemberGroup"]["brokerAddrs"] == {}


@pytest.mark.parametrize(("body", "label"), [(b"orderMessageEnable=false", "MS-2321"), (b"listen=1", "MS-2320")])
async def test_settings_are_told_and_none_can_be_changed(nameserver: Nameserver, body: bytes, label: str) -> None:
    assert b"orderMessageEnable=true\n" in (await nameserver.ask(319)).body
    answer = await nameserver.ask(318, body)
    assert answer.code == 29
    assert label in str(answer.remark)


async def test_a_heartbeat_prolongs_the_registration_of_its_address_alone(nameserver: Nameserver) -> None:
    nameserver.clock.advance_ms(int(LEASE_S * 1000) - 1)
    told = {"clusterName": "c", "brokerName": "b", "brokerAddr": "h:10912", "brokerId": "2"}
    assert (await nameserver.ask(904, **told)).code == 0
    assert (await nameserver.ask(904, **{**told, "brokerName": "nobody"})).code == 0
    nameserver.clock.advance_ms(1)
    group = (await nameserver.told(901, clusterName="c", brokerName="b"))["brokerMemberGroup"]
    assert group["brokerAddrs"] == {"1": "h:10912"}
