from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from millstream.cluster.nameserver import LEASE_S, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.clock import ManualClock
from millstream.model.message import Address
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.registration import pack_registration
from millstream.protocol.remoting.administration.settings import topic_data
from millstream.protocol.remoting.bodies import RegisterBrokerBody, TopicConfigTable, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_server import RemotingServer
from patience import eventually

WHO = {"brokerName": "b", "brokerAddr": "h:10911", "clusterName": "c", "brokerId": "0"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def port(clock: ManualClock) -> AsyncIterator[int]:
    server = RemotingServer(nameserver_handlers(RouteRegistry(), clock=clock))
    yield await server.start()
    await server.close()


@pytest_asyncio.fixture
async def connection(port: int) -> AsyncIterator[RemotingConnection]:
    opened = await RemotingConnection.open(Address("127.0.0.1", port))
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def other_connection(port: int) -> AsyncIterator[RemotingConnection]:
    opened = await RemotingConnection.open(Address("127.0.0.1", port))
    yield opened
    await opened.close()


def registration(*topics: str, **ext: str) -> RemotingCommand:
    table = TopicConfigTable({name: topic_data(TopicConfig(name)) for name in topics})
    body = encode_body(RegisterBrokerBody(table))
    fields = {**WHO, "haServerAddr": "", "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF), **ext}
    return RemotingCommand(RequestCode.REGISTER_BROKER, fields, body)


async def ask(connection: RemotingConnection, code: int, **ext: str) -> RemotingCommand:
    return await connection.request(RemotingCommand(code, ext), 5)


async def test_a_broker_that_registers_is_in_routes_topics_and_cluster(connection: RemotingConnection) -> None:
    answer = await connection.request(registration("t", "u"), 5)
    assert (answer.code, json.loads(answer.body)) == (0, {"table": {}})
    route = json.loads((await ask(connection, 105, topic="t")).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "h:10911"}
    assert route["queueDatas"][0]["writeQueueNums"] == 4
    assert json.loads((await ask(connection, 206)).body)["topicList"] == ["t", "u"]
    assert json.loads((await ask(connection, 106)).body)["clusterAddrTable"] == {"c": ["b"]}


async def test_an_unknown_topic_is_answered_with_17(connection: RemotingConnection) -> None:
    answer = await ask(connection, 105, topic="nowhere")
    assert answer.code == 17
    assert "nowhere" in str(answer.remark)


async def test_a_broker_that_falls_silent_is_forgotten_after_its_lease(
    connection: RemotingConnection, clock: ManualClock
) -> None:
    await connection.request(registration("t"), 5)
    clock.advance_ms(int(LEASE_S * 1000) - 1)
    assert (await ask(connection, 105, topic="t")).code == 0
    clock.advance_ms(1)
    assert (await ask(connection, 105, topic="t")).code == 17


async def test_a_broker_that_unregisters_is_gone_at_once(connection: RemotingConnection) -> None:
    await connection.request(registration("t"), 5)
    assert (await ask(connection, 104, **WHO)).code == 0
    assert (await ask(connection, 105, topic="t")).code == 17


async def test_a_replica_is_told_its_masters_addresses(connection: RemotingConnection) -> None:
    await connection.request(registration("t", haServerAddr="h:10912"), 5)
    answer = await connection.request(registration("t", brokerId="1", brokerAddr="h:20911", haServerAddr="h:9"), 5)
    assert answer.ext == {"masterAddr": "h:10911", "haServerAddr": "h:10912"}


async def test_a_topic_is_deleted(connection: RemotingConnection) -> None:
    await connection.request(registration("t"), 5)
    assert (await ask(connection, 216, topic="t")).code == 0
    assert (await ask(connection, 105, topic="t")).code == 17


@pytest.mark.parametrize(
    ("ext", "code"),
    [
        ({"bodyCrc32": "5"}, 13),
        ({"bodyCrc32": "x"}, 13),
        ({"brokerId": "first"}, 13),
        ({"brokerName": ""}, 13),
        ({"compressed": "true"}, 13),
    ],
)
async def test_a_registration_that_cannot_be_read_is_refused(
    connection: RemotingConnection, ext: dict[str, str], code: int
) -> None:
    assert (await connection.request(registration("t", **ext), 5)).code == code
    assert (await ask(connection, 105, topic="t")).code == 17


async def test_a_registration_tells_what_is_new_beside_what_was_told_unless_it_is_whole(
    connection: RemotingConnection,
) -> None:
    await connection.request(registration("t", "u"), 5)
    await connection.request(registration("v"), 5)
    assert json.loads((await ask(connection, 206)).body)["topicList"] == ["t", "u", "v"]
    await connection.request(registration("u", whole="true"), 5)
    assert json.loads((await ask(connection, 206)).body)["topicList"] == ["u"]


async def test_a_compressed_registration_counts_as_a_plain_one(connection: RemotingConnection) -> None:
    table = TopicConfigTable({"t": topic_data(TopicConfig("t", read_queues=7))})
    body = pack_registration(RegisterBrokerBody(table))
    fields = {**WHO, "haServerAddr": "", "compressed": "true", "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    assert (await connection.request(RemotingCommand(RequestCode.REGISTER_BROKER, fields, body), 5)).code == 0
    assert json.loads((await ask(connection, 105, topic="t")).body)["queueDatas"][0]["readQueueNums"] == 7


async def test_a_broker_is_gone_with_the_connection_by_which_it_registered_last(
    connection: RemotingConnection, other_connection: RemotingConnection, port: int
) -> None:
    await connection.request(registration("t"), 5)
    await other_connection.request(registration("t"), 5)
    await closed(connection)
    asker = await RemotingConnection.open(Address("127.0.0.1", port))
    assert (await ask(asker, 105, topic="t")).code == 0
    await closed(other_connection)
    assert (await ask(asker, 105, topic="t")).code == 17
    await asker.close()


async def closed(connection: RemotingConnection) -> None:
    """Close it and let the server see that, which takes the turns of its loop."""
    gone = asyncio.Event()
    connection.on_close.append(gone.set)
    await connection.close()
    await gone.wait()
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_replica_that_becomes_the_master_is_no_replica_any_more(connection: RemotingConnection) -> None:
    await connection.request(registration("t", brokerId="1", brokerAddr="h:20911"), 5)
    await connection.request(registration("t", brokerId="0", brokerAddr="h:20911"), 5)
    route = json.loads((await ask(connection, 105, topic="t")).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "h:20911"}


def registration_of(address: str, epoch: int, **ext: str) -> RemotingCommand:
    table = TopicConfigTable({"t": topic_data(TopicConfig("t"))}, {"counter": 1, "timestamp": 1, "stateVersion": epoch})
    fields = {**WHO, "brokerAddr": address, "haServerAddr": "", **ext}
    return RemotingCommand(RequestCode.REGISTER_BROKER, fields, encode_body(RegisterBrokerBody(table)))


async def test_a_new_master_takes_the_route_from_an_old_one_that_lives_and_keeps_it_6316(
    connection: RemotingConnection, other_connection: RemotingConnection, port: int
) -> None:
    """RocketMQ issue 6316. The old one's connection ends, so that it comes back and hears that it is none any more."""
    assert (await connection.request(registration_of("old:1", 3), 5)).code == 0
    assert (await other_connection.request(registration_of("new:1", 4, brokerId="2"), 5)).code == 0
    assert (await other_connection.request(registration_of("new:1", 4), 5)).code == 0
    await eventually(lambda: not connection.is_open)
    back = await RemotingConnection.open(Address("127.0.0.1", port))
    answer = await back.request(registration_of("old:1", 3), 5)
    assert (answer.code, "epoch 3" in (answer.remark or "")) == (2000, True)
    assert (await back.request(registration_of("old:1", 3, brokerId="1"), 5)).code == 0
    route = json.loads((await ask(back, 105, topic="t")).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "new:1", "1": "old:1"}
    await back.close()


async def test_a_broker_without_an_epoch_keeps_its_name_from_one_that_has_one(
    connection: RemotingConnection, other_connection: RemotingConnection
) -> None:
    await connection.request(registration("t"), 5)
    assert (await other_connection.request(registration_of("other:1", 9), 5)).code == 16


async def test_the_route_to_a_master_of_a_set_is_kept_until_another_takes_its_place(
    connection: RemotingConnection, other_connection: RemotingConnection, port: int, clock: ManualClock
) -> None:
    await connection.request(registration_of("one:1", 1), 5)
    await closed(connection)
    asker = await RemotingConnection.open(Address("127.0.0.1", port))
    assert (await ask(asker, 105, topic="t")).code == 0
    await other_connection.request(registration_of("two:1", 2), 5)
    route = json.loads((await ask(asker, 105, topic="t")).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "two:1"}
    await closed(other_connection)
    clock.advance_ms(9_000)
    assert (await ask(asker, 105, topic="t")).code == 0
    clock.advance_ms(2_000)
    assert (await ask(asker, 105, topic="t")).code == 17, "nobody took its place"
    await asker.close()


async def test_a_replica_whose_connection_ends_leaves_the_route_and_the_master_stays(
    connection: RemotingConnection, other_connection: RemotingConnection, port: int
) -> None:
    await connection.request(registration_of("one:1", 1), 5)
    await other_connection.request(registration_of("two:1", 1, brokerId="2"), 5)
    route = json.loads((await ask(connection, 105, topic="t")).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "one:1", "2": "two:1"}
    await closed(other_connection)
    route = json.loads((await ask(connection, 105, topic="t")).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "one:1"}


async def test_the_topics_of_a_replica_are_not_read_while_its_master_is_registered(
    connection: RemotingConnection, other_connection: RemotingConnection
) -> None:
    await connection.request(registration("t"), 5)
    replica = {"brokerId": "1", "brokerAddr": "h:20911"}
    assert (await other_connection.request(registration("u", **replica), 5)).code == 0
    assert json.loads((await ask(connection, 206)).body)["topicList"] == ["t"]
    await ask(connection, 104, **WHO)
    assert (await other_connection.request(registration("u", **replica, whole="true"), 5)).code == 0
    assert json.loads((await ask(connection, 206)).body)["topicList"] == ["u"]


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_the_version_of_a_replicas_topics_is_known_though_they_are_not_read(
    connection: RemotingConnection, other_connection: RemotingConnection, is_compressed: bool
) -> None:
    await connection.request(registration("t"), 5)
    version = {"counter": 7, "timestamp": 8, "stateVersion": 9}
    told = RegisterBrokerBody(TopicConfigTable({"u": topic_data(TopicConfig("u"))}, version))
    body = pack_registration(told) if is_compressed else encode_body(told)
    fields = {**WHO, "brokerId": "1", "brokerAddr": "h:20911", "compressed": str(is_compressed).lower()}
    assert (await other_connection.request(RemotingCommand(RequestCode.REGISTER_BROKER, fields, body), 5)).code == 0
    query = RemotingCommand(RequestCode.QUERY_DATA_VERSION, fields, json.dumps(version).encode())
    assert (await other_connection.request(query, 5)).ext["changed"] == "false"


async def test_a_replica_whose_registration_cannot_be_read_is_refused_though_its_topics_do_not_count(
    connection: RemotingConnection, other_connection: RemotingConnection
) -> None:
    await connection.request(registration("t"), 5)
    replica = registration("u", brokerId="1", brokerAddr="h:20911", compressed="true")
    assert (await other_connection.request(replica, 5)).code == 13
