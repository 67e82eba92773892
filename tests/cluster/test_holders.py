"""Which registration a nameserver lets in while another broker of the name may live; over real connections."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from millstream.cluster import remoting as module
from millstream.cluster.holders import BEAT_LIMIT_S, CLOSED_GRACE_S, Claim, ClaimVerdict, Holders
from millstream.cluster.nameserver import LEASE_S, BrokerRegistration, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.clock import ManualClock
from millstream.model.message import Address
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.settings import topic_data
from millstream.protocol.remoting.bodies import RegisterBrokerBody, TopicConfigTable, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_server import RemotingServer
from patience import PATIENCE_S

WHO = {"brokerName": "b", "brokerAddr": "h:10911", "clusterName": "c", "brokerId": "0"}
THERE = "other:10911"


class Ground:
    """A nameserver, and connections to it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.registry = RouteRegistry()
        self.server = RemotingServer(nameserver_handlers(self.registry, clock=self.clock), clock=self.clock)
        self.port = 0
        self.opened: list[RemotingConnection] = []

    async def connect(self, *, silent: bool = False) -> RemotingConnection:
        """Another one; a `silent` one answers nothing that it is asked."""
        listener = (lambda _: None) if silent else None
        connection = await RemotingConnection.open(Address("127.0.0.1", self.port), listener=listener)
        self.opened.append(connection)
        return connection

    async def address(self, topic: str = "t") -> str | None:
        """Where the route of the topic leads."""
        answer = await (await self.connect()).request(RemotingCommand(105, {"topic": topic}), 5)
        return None if answer.code else str(json.loads(answer.body)["brokerDatas"][0]["brokerAddrs"]["0"])


@pytest_asyncio.fixture
async def ground() -> AsyncIterator[Ground]:
    made = Ground()
    made.port = await made.server.start()
    yield made
    for connection in made.opened:
        await connection.close()
    await made.server.close()


def registration(*topics: str, **ext: str) -> RemotingCommand:
    table = TopicConfigTable({name: topic_data(TopicConfig(name)) for name in topics})
    fields = {**WHO, "haServerAddr": "", **ext}
    return RemotingCommand(RequestCode.REGISTER_BROKER, fields, encode_body(RegisterBrokerBody(table)))


async def register(connection: RemotingConnection, *topics: str, **ext: str) -> RemotingCommand:
    return await connection.request(registration(*topics, **ext), 5)


async def gone(connection: RemotingConnection) -> None:
    """Close it and let the server see that, which takes the turns of its loop."""
    closed = asyncio.Event()
    connection.on_close.append(closed.set)
    await connection.close()
    await closed.wait()
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_live_twin_at_another_address_is_refused_and_the_first_keeps_its_routes(ground: Ground) -> None:
    await register(await ground.connect(), "t")
    answer = await register(await ground.connect(), "u", brokerAddr=THERE, whole="true")
    assert answer.code != 0
    for part in ("'b'", "h:10911", THERE, "--name", "MS-2350"):
        assert part in str(answer.remark)
    assert (await ground.address("t"), await ground.address("u")) == ("h:10911", None)


async def test_a_twin_that_asks_on_fills_no_log(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    await register(await ground.connect(), "t")
    twin = await ground.connect()
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            await register(twin, "t", brokerAddr=f"other:{number + 1}")
    assert len(caplog.records) == 1
    assert "h:10911" in caplog.text


async def test_who_came_after_a_goodbye_gets_in_at_once(ground: Ground) -> None:
    first = await ground.connect()
    await register(first, "t")
    await first.request(RemotingCommand(RequestCode.UNREGISTER_BROKER, dict(WHO)), 5)
    assert (await register(await ground.connect(), "t", brokerAddr=THERE)).code == 0
    assert await ground.address() == THERE


async def test_who_comes_after_a_closed_connection_gets_in_after_a_moment(ground: Ground) -> None:
    first, second = await ground.connect(), await ground.connect()
    await register(first, "t")
    await gone(first)
    assert await ground.address() is None
    assert (await register(second, "t", brokerAddr=THERE)).code != 0
    ground.clock.advance_ms(int(CLOSED_GRACE_S * 1000))
    assert (await register(second, "t", brokerAddr=THERE)).code == 0


async def test_a_broker_whose_connection_was_cut_comes_back_before_its_twin(ground: Ground) -> None:
    first = await ground.connect()
    await register(first, "t")
    await gone(first)
    twin = await ground.connect()
    assert (await register(twin, "t", brokerAddr=THERE)).code != 0
    assert (await register(await ground.connect(), "t")).code == 0
    ground.clock.advance_ms(int(CLOSED_GRACE_S * 1000))
    assert (await register(twin, "t", brokerAddr=THERE)).code != 0


async def test_a_broker_that_missed_its_beat_and_answers_nothing_gives_way(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROBE_S", 0.05)
    await register(await ground.connect(silent=True), "t")
    twin = await ground.connect()
    assert (await register(twin, "t", brokerAddr=THERE)).code != 0
    ground.clock.advance_ms(int(BEAT_LIMIT_S * 1000))
    assert (await register(twin, "t", brokerAddr=THERE)).code == 0
    assert await ground.address() == THERE


async def test_a_broker_that_missed_its_beat_and_answers_stays(ground: Ground) -> None:
    # RocketMQ's brokers may register once a minute; they answer what they do not know, as ours do.
    await register(await ground.connect(), "t")
    ground.clock.advance_ms(int(BEAT_LIMIT_S * 1000))
    assert (await register(await ground.connect(), "t", brokerAddr=THERE)).code != 0
    assert await ground.address() == "h:10911"


async def test_after_its_lease_a_broker_holds_its_name_no_more(ground: Ground) -> None:
    await register(await ground.connect(silent=True), "t")
    ground.clock.advance_ms(int(LEASE_S * 1000))
    assert (await register(await ground.connect(), "t", brokerAddr=THERE)).code == 0


async def test_a_broker_may_change_its_address_over_its_own_connection(ground: Ground) -> None:
    connection = await ground.connect()
    await register(connection, "t")
    assert (await register(connection, "t", brokerAddr=THERE)).code == 0
    assert await ground.address() == THERE


async def test_nobody_else_takes_a_registration_back(ground: Ground) -> None:
    await register(await ground.connect(), "t")
    stranger = await ground.connect()
    for where in (THERE, ""):
        fields = {**WHO, "brokerAddr": where}
        answer = await stranger.request(RemotingCommand(RequestCode.UNREGISTER_BROKER, fields), 5)
        assert answer.code != 0
    assert "MS-2351" in str(answer.remark)
    assert await ground.address() == "h:10911"


async def test_a_broker_of_another_id_cannot_push_a_live_one_off_its_address(ground: Ground) -> None:
    await register(await ground.connect(), "t")
    stranger = await ground.connect()
    assert (await register(stranger, "u", brokerId="-1", brokerAddr=THERE)).code != 0
    assert (await register(stranger, "u", brokerId="1", brokerAddr=THERE, clusterName="x")).code == 0
    assert (await ground.address("t"), await ground.address("u")) == ("h:10911", None)
    info = json.loads((await stranger.request(RemotingCommand(106), 5)).body)
    assert info["clusterAddrTable"] == {"c": ["b"]}


async def test_a_broker_taken_out_of_the_routes_by_its_machine_registers_again_at_once(ground: Ground) -> None:
    first = await ground.connect()
    await register(first, "t")
    closed = asyncio.Event()
    first.on_close.append(closed.set)
    same_machine = await ground.connect()
    assert (await same_machine.request(RemotingCommand(RequestCode.UNREGISTER_BROKER, dict(WHO)), 5)).code == 0
    # Its connection ends, which is what has a broker register again.
    async with asyncio.timeout(PATIENCE_S):
        await closed.wait()


async def test_a_registration_that_found_something_missing_is_answered_with_a_wish_for_all(ground: Ground) -> None:
    connection = await ground.connect()
    assert (await register(connection, whole="false")).ext.get("tellAll") == "true"
    assert "tellAll" not in (await register(connection, "t", whole="true")).ext
    assert "tellAll" not in (await register(connection, whole="false")).ext
    await connection.request(RemotingCommand(216, {"topic": "t"}), 5)
    assert (await register(connection, whole="false")).ext.get("tellAll") == "true"


async def test_nobody_takes_a_broker_of_the_same_process_out_of_the_routes(ground: Ground) -> None:
    own = BrokerRegistration("c", "b", "h:10911", (TopicConfig("t"),))
    ground.registry.register(own, lease_s=math.inf)
    stranger = await ground.connect()
    for ext in ({"brokerAddr": THERE}, {}, {"brokerId": "1", "brokerAddr": THERE}):
        assert "MS-2350" in str((await register(stranger, "u", whole="true", **ext)).remark)
    answer = await stranger.request(RemotingCommand(RequestCode.UNREGISTER_BROKER, dict(WHO)), 5)
    assert "MS-2351" in str(answer.remark)
    body = json.dumps({"queueDatas": [{"brokerName": "b", "readQueueNums": 0, "writeQueueNums": 0, "perm": 0}]})
    await stranger.request(RemotingCommand(217, {"topic": "t"}, body.encode()), 5)
    await stranger.request(RemotingCommand(216, {"topic": "t"}), 5)
    route = json.loads((await stranger.request(RemotingCommand(105, {"topic": "t"}), 5)).body)
    assert route["queueDatas"][0]["writeQueueNums"] == 4
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "h:10911"}


async def test_one_name_has_a_bounded_number_of_replicas(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.cluster.nameserver.MAX_REPLICAS", 3)
    connection = await ground.connect()
    codes = [
        (await register(connection, brokerId=str(number), brokerAddr=f"h:{number + 1}")).code for number in range(5)
    ]
    assert [code == 0 for code in codes] == [True, True, True, False, False]


def claim(address: str = "h:1", *, host: str = "h", name: str = "b", number: int = 0, by: str = "x") -> Claim[str]:
    return Claim(name, number, address, host, by)


def test_the_address_of_a_live_broker_is_not_taken_by_another_machine() -> None:
    holders = Holders[str]()
    holders.hold(claim(), 0.0)
    assert holders.against(claim(by="y"), (0,), 1.0)[0] is ClaimVerdict.FREE
    verdict, doubted = holders.against(claim(host="stranger", by="y"), (0,), 1.0)
    assert verdict is ClaimVerdict.ASK
    assert doubted is holders.of("b", 0)
    assert holders.against(claim(host="stranger", number=7, by="y"), (0,), 1.0)[0] is ClaimVerdict.ASK


def test_a_name_of_which_the_connection_closed_is_kept_for_a_moment_and_then_forgotten() -> None:
    holders = Holders[str]()
    for number in range(3):
        holders.hold(claim(f"h:{number}", number=number), 0.0)
    assert sorted(holders.close("x", 10.0)) == [("b", 0), ("b", 1), ("b", 2)]
    assert holders.close("x", 10.5) == []
    twin = claim("twin:1", by="y")
    assert holders.against(twin, (), 10.0 + CLOSED_GRACE_S / 2)[0] is ClaimVerdict.TAKEN
    assert holders.against(twin, (), 10.0 + CLOSED_GRACE_S)[0] is ClaimVerdict.FREE
    assert [holders.of("b", number) for number in range(3)] == [None, None, None]


async def test_the_id_that_a_replica_gave_up_when_it_became_the_master_is_free_for_another(ground: Ground) -> None:
    replica = await ground.connect()
    await register(replica, "t", brokerId="1", brokerAddr="h:20911")
    await register(replica, "t", brokerId="0", brokerAddr="h:20911")
    assert (await register(await ground.connect(), brokerId="1")).code == 0
    route = json.loads((await replica.request(RemotingCommand(105, {"topic": "t"}), 5)).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "h:20911", "1": "h:10911"}
