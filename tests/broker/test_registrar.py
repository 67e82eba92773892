from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker import registrar as module
from millstream.broker.registrar import Registrar, UntoldTopics
from millstream.cluster import holders
from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.remoting import nameserver_handlers
from millstream.model.message import Address
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.registration import BrokerIdentity
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.transport.remoting_client import SILENCE_S, RemotingConnection
from millstream.transport.remoting_connection import Connection
from millstream.transport.remoting_server import RemotingServer
from patience import PATIENCE_S


class Nameserver:
    """A nameserver that can go away and come back on its port."""

    def __init__(self) -> None:
        self.registry = RouteRegistry()
        self.port = 0
        self.server = RemotingServer({})

    async def start(self) -> None:
        self.registry = RouteRegistry()
        self.server = RemotingServer(nameserver_handlers(self.registry), port=self.port)
        self.port = await self.server.start()

    async def stop(self) -> None:
        await self.server.close()

    @property
    def registrations(self) -> int:
        """How many it has taken."""
        return sum(self.server.latency[RequestCode.REGISTER_BROKER, ResponseCode.SUCCESS].counts)

    @property
    def refusals(self) -> int:
        """How many it has refused."""
        return sum(self.server.latency[RequestCode.REGISTER_BROKER, ResponseCode.NO_PERMISSION].counts)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest_asyncio.fixture
async def nameservers() -> AsyncIterator[list[Nameserver]]:
    both = [Nameserver(), Nameserver()]
    for one in both:
        await one.start()
    yield both
    for one in both:
        await one.stop()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)


def registrar_of(addresses: list[str], topics: dict[str, TopicConfig]) -> Registrar:
    return Registrar(addresses, BrokerIdentity("c", "b", "h:10911"), topics.values)


def topics_named(*names: str) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name) for name in names}


async def until_told(nameserver: Nameserver, *topics: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while nameserver.registry.topics() != sorted(topics):  # noqa: ASYNC110 - nothing says so
            await asyncio.sleep(0)


async def test_a_broker_is_known_to_every_nameserver_when_start_returns(nameservers: list[Nameserver]) -> None:
    registrar = registrar_of([one.address for one in nameservers], topics_named("t", "u"))
    await registrar.start()
    assert [one.registry.topics() for one in nameservers] == [["t", "u"], ["t", "u"]]
    assert set(registrar.reached.values()) == {True}
    await registrar.close()
    assert [one.registry.topics() for one in nameservers] == [[], []]


async def test_a_change_is_told_everywhere_before_settled_returns(nameservers: list[Nameserver]) -> None:
    topics = topics_named("t")
    registrar = registrar_of([one.address for one in nameservers], topics)
    await registrar.start()
    topics["u"] = TopicConfig("u")
    registrar.note_change("u", topics["u"])
    await registrar.await_settled()
    assert [one.registry.topics() for one in nameservers] == [["t", "u"], ["t", "u"]]
    registrar.note_change("t", topics.pop("t") and None)
    await registrar.await_settled()
    assert [one.registry.topics() for one in nameservers] == [["u"], ["u"]]
    await registrar.close()


async def test_topics_that_somebody_else_took_away_are_back_at_the_next_beat(
    nameservers: list[Nameserver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REGISTRATION_INTERVAL_S", 0.01)
    one = nameservers[0]
    registrar = registrar_of([one.address], topics_named("t"))
    await registrar.start()
    one.registry.delete_topic("t")
    await until_told(one, "t")
    await registrar.close()


async def test_a_repeated_registration_tells_no_topics_and_now_and_then_all(
    nameservers: list[Nameserver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REGISTRATION_INTERVAL_S", 0.01)
    one, topics = nameservers[0], topics_named("t")
    registrar = registrar_of([one.address], topics)
    await registrar.start()
    topics["u"] = TopicConfig("u")  # Nobody said so.
    seen = one.registrations
    async with asyncio.timeout(PATIENCE_S):
        while one.registrations < seen + 3:  # noqa: ASYNC110 - nothing says so
            await asyncio.sleep(0.005)
    assert one.registry.topics() == ["t"]
    monkeypatch.setattr(module, "WHOLE_INTERVAL_S", 0.0)
    await until_told(one, "t", "u")
    await registrar.close()


async def test_a_broker_that_is_taken_out_of_the_routes_is_back_at_once_with_all_topics(
    nameservers: list[Nameserver],
) -> None:
    one = nameservers[0]
    registrar = registrar_of([one.address], topics_named("t", "u"))
    await registrar.start()
    stranger = await RemotingConnection.open(Address("127.0.0.1", one.port))
    await stranger.request(BrokerIdentity("c", "b", "h:10911").farewell(), 5)
    await until_told(one, "t", "u")
    await stranger.close()
    await registrar.close()


@pytest.mark.usefixtures("quick")
async def test_a_broker_whose_name_is_taken_says_so_once_and_gets_in_when_it_is_free(
    nameservers: list[Nameserver], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFUSED_RETRY_MAX_S", 0.02)
    one = nameservers[0]
    first = registrar_of([one.address], topics_named("t"))
    second = Registrar([one.address], BrokerIdentity("c", "b", "other:10911"), topics_named("u").values)
    await first.start()
    with caplog.at_level(logging.WARNING, "millstream.broker.registrar"):
        await second.start()
        async with asyncio.timeout(PATIENCE_S):
            while one.refusals < 10:  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(0.005)
        assert one.registry.topics() == ["t"]
        told = [record.getMessage() for record in caplog.records if record.name == module.__name__]
        assert len([words for words in told if "h:10911" in words and "MS-2350" in words]) == len(told) == 1
        await first.close()
        await until_told(one, "u")
    await second.close()


async def test_a_broker_that_was_killed_and_starts_at_another_address_is_known_when_its_start_returns(
    nameservers: list[Nameserver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.1)
    monkeypatch.setattr(module, "START_REFUSALS", 1000)  # A busy machine may see late that the connection closed.
    monkeypatch.setattr(holders, "CLOSED_GRACE_S", 0.05)
    one = nameservers[0]
    first = await RemotingConnection.open(Address("127.0.0.1", one.port), timeout_s=PATIENCE_S)
    await first.request(BrokerIdentity("c", "b", "h:10911").registration([TopicConfig("t")], whole=True), PATIENCE_S)
    await first.close()
    again = Registrar([one.address], BrokerIdentity("c", "b", "other:10911"), topics_named("t").values)
    await again.start()
    assert one.refusals
    assert one.registry.master_address("b") == "other:10911"
    await again.close()


@pytest.mark.usefixtures("quick")
async def test_a_start_waits_no_longer_than_a_few_refusals_for_a_name_that_a_live_broker_has(
    nameservers: list[Nameserver],
) -> None:
    one = nameservers[0]
    first = registrar_of([one.address], topics_named("t"))
    await first.start()
    second = Registrar([one.address], BrokerIdentity("c", "b", "other:10911"), topics_named("u").values)
    async with asyncio.timeout(PATIENCE_S):
        await second.start()
    assert set(second.reached.values()) == {False}
    assert one.refusals >= module.START_REFUSALS
    await second.close()
    await first.close()


def test_a_refused_broker_asks_at_growing_intervals_up_to_a_bound() -> None:
    pauses = [module.refused_pause_s(refusals, lambda: 0.0) for refusals in range(1, 10)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == module.REFUSED_RETRY_MAX_S


def test_a_broker_that_a_busy_nameserver_refused_asks_again_soon() -> None:
    pauses = [module.refused_pause_s(refusals, lambda: 0.0, is_busy=True) for refusals in range(1, 10)]
    assert pauses[:2] == [1, 2]
    assert max(pauses) == module.BUSY_RETRY_MAX_S < module.REFUSED_RETRY_MAX_S


@pytest.mark.parametrize("is_busy", [True, False])
async def test_a_registrar_counts_a_refusal_for_want_of_room_as_a_busy_nameserver(
    nameservers: list[Nameserver], monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    one = nameservers[0]
    asked: list[bool] = []

    def note(refusals: int, *, is_busy: bool) -> float:
        asked.append(is_busy)
        return 0.01

    monkeypatch.setattr(module, "refused_pause_s", note)
    first = registrar_of([one.address], topics_named("t"))
    if is_busy:
        monkeypatch.setattr(one.registry, "register", lambda *_, **__: False)
    else:
        await first.start()
    second = Registrar([one.address], BrokerIdentity("c", "b", "other:10911"), topics_named("u").values)
    await second.start()
    assert set(asked) == {is_busy}
    await second.close()
    await first.close()


async def test_a_nameserver_that_is_down_holds_nobody_up(
    nameservers: list[Nameserver], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: connections are refused.
        down = f"127.0.0.1:{taken.getsockname()[1]}"
        topics = topics_named("t")
        registrar = registrar_of([down, nameservers[0].address], topics)
        with caplog.at_level(logging.WARNING):
            await registrar.start()
        assert down in caplog.text
        assert registrar.reached == {down: False, nameservers[0].address: True}
        topics["u"] = TopicConfig("u")
        registrar.note_change("u", topics["u"])
        await registrar.await_settled()
        assert nameservers[0].registry.topics() == ["t", "u"]
        await registrar.close()


@pytest.mark.usefixtures("quick")
async def test_a_nameserver_that_comes_back_is_told_all_again(nameservers: list[Nameserver]) -> None:
    one = nameservers[0]
    topics = topics_named("t")
    registrar = registrar_of([one.address], topics)
    await registrar.start()
    await one.stop()
    topics["u"] = TopicConfig("u")
    registrar.note_change("u", topics["u"])
    await one.start()
    await until_told(one, "t", "u")
    await registrar.close()


@pytest.mark.usefixtures("quick")
async def test_a_nameserver_that_says_nothing_is_asked_again_over_another_connection(
    nameservers: list[Nameserver], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = nameservers[0]
    topics = topics_named("t")
    registrar = registrar_of([one.address], topics)
    await registrar.start()
    monkeypatch.setattr(module, "_ANSWER_S", SILENCE_S)
    handlers = one.server.handlers
    asked: list[Connection] = []
    one.server.handlers = {RequestCode.REGISTER_BROKER: lambda _, connection: asked.append(connection)}
    topics["u"] = TopicConfig("u")
    registrar.note_change("u", topics["u"])
    async with asyncio.timeout(PATIENCE_S):
        while len(set(asked)) < 2:  # noqa: ASYNC110 - nothing says so
            await asyncio.sleep(0.01)
    one.server.handlers = handlers
    await until_told(one, "t", "u")
    await registrar.close()


async def test_a_broker_that_dies_is_gone_with_its_connection(nameservers: list[Nameserver]) -> None:
    registrar = registrar_of([nameservers[0].address], topics_named("t"))
    await registrar.start()
    for keeper in registrar._keepers.values():
        assert keeper._connection is not None
        keeper._task.cancel()
        await keeper._connection.close()
    await until_told(nameservers[0])
    await registrar.close()


async def test_an_address_that_a_name_no_longer_stands_for_is_told_nothing_more(
    nameservers: list[Nameserver], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nameservers
    stands_for = [first.port]

    async def addresses(name: str) -> list[module.Address]:
        return [module.Address("127.0.0.1", port) for port in stands_for]

    monkeypatch.setattr(module, "_addresses", addresses)
    registrar = registrar_of(["nameserver.example:9876"], topics_named("t"))
    await registrar.start()
    stands_for[:] = [second.port]
    await registrar._look_up()
    await registrar.await_settled()
    assert (first.registry.topics(), second.registry.topics()) == ([], ["t"])
    stands_for.clear()
    await registrar._look_up()
    assert second.registry.topics() == ["t"]
    await registrar.close()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "delete", "tell", "lose"]))))
def test_what_was_told_is_what_there_is_whatever_changes_and_fails(steps: list[tuple[str, str]]) -> None:
    untold, topics, told = UntoldTopics(), dict[str, TopicConfig](), RouteRegistry()
    number = 1

    def tell(*, arrives: bool) -> None:
        changed, whole = untold.take(topics.values)
        if arrives:
            told.register(BrokerRegistration("c", "b", "h:10911", tuple(changed)), whole=whole)
        else:
            untold.put_back()

    for name, step in steps:
        number += 1
        if step == "put":
            topics[name] = TopicConfig(name, read_queues=number)
            untold.change(name, topics[name])
        elif step == "delete":
            topics.pop(name, None)
            untold.change(name, None)
        else:
            tell(arrives=step == "tell")
    tell(arrives=True)
    assert told.topics() == sorted(topics)
    for name, topic in topics.items():
        route = told.route(name)
        assert route is not None
        assert route.queue_datas[0].read_queue_nums == topic.read_queues


async def test_a_replica_is_in_the_route_and_leaves_the_topics_of_its_master_alone(
    nameservers: list[Nameserver],
) -> None:
    [nameserver, _] = nameservers
    master = registrar_of([nameserver.address], topics_named("t"))
    await master.start()
    replica = Registrar([nameserver.address], BrokerIdentity("c", "b", "h:20911", 2, 3), tuple)
    await replica.start()
    assert nameserver.registry.members("b") == {0: "h:10911", 2: "h:20911"}
    await master.close()
    replica.changed_all()
    await replica.await_settled()
    assert (nameserver.registry.topics(), nameserver.registry.members("b")) == (["t"], {2: "h:20911"})
    await replica.close()


async def test_an_identity_that_changes_is_told_over_the_same_connection(nameservers: list[Nameserver]) -> None:
    [nameserver, _] = nameservers
    registrar = Registrar([nameserver.address], BrokerIdentity("c", "b", "h:1", 2, 3), tuple)
    await registrar.start()
    registrar.change_identity(BrokerIdentity("c", "b", "h:1", 2, 4))
    await registrar.await_settled()
    assert nameserver.registry.epoch("b", 2) == 4
    assert nameserver.server.connections == 1
    await registrar.close()
