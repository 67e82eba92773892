"""The backend over several brokers, some of which fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract_ground import Ground, Site, outgoing, refused, running_site

from millstream.broker.remoting import broker_handlers
from millstream.model.clock import ManualClock
from millstream.model.errors import ConnectionFailed
from millstream.model.filter import parse_tag_filter
from millstream.model.lite import LiteAction, LiteStart, LiteStartKind, LiteSync
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, PopRequest, PullRequest, QueuePoint, Resolution
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.trace import TRACE_TOPIC
from millstream.proxy.remote import connection_pool as lanes
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remote.connection_pool import ASK_TIMEOUT_S
from millstream.proxy.remote.sender import AVOID_S, SLOW_S
from millstream.transport.remoting_connection import Connection
from millstream.transport.remoting_server import RemotingServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def site(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Site]:
    async with running_site(tmp_path, clock, 2) as opened:
        opened.create(TopicConfig("orders", read_queues=2, write_queues=2))
        yield opened


@pytest.fixture
async def ground(site: Site, clock: ManualClock) -> AsyncIterator[Ground]:
    backend = RemoteBackend(site.nameserver_address, clock=clock)
    await backend.start()
    yield Ground(backend, site.brokers, clock)
    await backend.close()


def held(site: Site, topic: str = "orders") -> list[int]:
    """Messages on each broker."""
    return [
        sum(broker.maintenance.store.max_offset(topic, number) for number in range(broker.topics.get(topic).queues))
        for broker in site.brokers
    ]


async def test_a_route_names_the_queues_of_all_brokers_in_order(ground: Ground) -> None:
    queues = (await ground.backend.route("orders")).queues
    assert [(queue.broker_name, queue.queue_id) for queue in queues] == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-b", 0),
        ("broker-b", 1),
    ]


async def test_messages_are_spread_and_acknowledged_where_they_lie(ground: Ground, site: Site) -> None:
    for number in range(8):
        await ground.send("orders", b"%d" % number)
    assert held(site) == [4, 4]
    popped = await ground.pop()
    assert len(popped) == 8
    for one in popped:
        await ground.backend.ack(AckRequest("g", "orders", one.handle))
    ground.clock.advance_ms(60_000)
    assert await ground.pop() == []


async def test_a_pop_without_a_brokers_name_takes_the_brokers_in_turn(ground: Ground) -> None:
    for number in range(4):
        await ground.send("orders", b"%d" % number)
    request = PopRequest("g", "orders", 30_000)
    found = [*await ground.backend.pop("", request), *await ground.backend.pop("", request)]
    assert len(found) == 4


async def test_a_queue_of_several_brokers_must_be_named_whole(ground: Ground) -> None:
    assert await refused(ground.backend.pull("", PullRequest("g", "orders", 0, 0))) == "QUEUE_NOT_FOUND"
    assert await refused(ground.backend.find_offset("", "orders", 0, QueuePoint.LAST)) == "QUEUE_NOT_FOUND"


async def test_what_cannot_go_to_a_broker_that_died_goes_to_another_one(ground: Ground, site: Site) -> None:
    await ground.send("orders", b"x")
    await site.servers[0].close()
    for number in range(6):
        await ground.send("orders", b"%d" % number)
    assert held(site)[1] >= 6


async def test_a_message_group_does_not_leave_its_broker(ground: Ground, site: Site) -> None:
    site.create(TopicConfig("ordered", MessageType.FIFO, read_queues=1, write_queues=1))
    groups = [f"g{number}" for number in range(8)]
    for group in groups:
        await ground.backend.send([outgoing("ordered", b"x", MessageType.FIFO, __SHARDINGKEY=group)])
    before = held(site, "ordered")
    assert min(before) > 0
    await site.servers[0].close()
    sent = [ground.backend.send([outgoing("ordered", b"x", MessageType.FIFO, __SHARDINGKEY=group)]) for group in groups]
    failures = [one for one in await asyncio.gather(*sent, return_exceptions=True) if isinstance(one, Exception)]
    assert len(failures) == before[0]
    assert all(isinstance(one, ConnectionFailed) for one in failures)
    assert held(site, "ordered") == [before[0], 2 * before[1]]


async def test_a_drained_broker_gets_no_message_and_no_send_fails(ground: Ground, site: Site) -> None:
    await ground.send("orders", b"x")
    drained = site.brokers[0]
    drained.topics._topics["orders"] = TopicConfig("orders", read_queues=2, write_queues=2, permission=Permission.READ)
    site.routes.update_topic(drained.name, "orders", drained.topics.get("orders"))
    before = held(site)[0]
    for number in range(6):
        await ground.send("orders", b"%d" % number)
    assert held(site)[0] == before


async def test_a_broker_that_comes_back_is_used_again_over_a_new_connection(ground: Ground, site: Site) -> None:
    await ground.send("orders", b"x")
    server = site.servers[0]
    port = int(site.routes.master_address("broker-a").rpartition(":")[2])
    await server.close()
    await ground.send("orders", b"x")
    await ground.send("orders", b"x")
    again = RemotingServer(broker_handlers(site.brokers[0]), port=port)
    await again.start()
    try:
        ground.clock.advance_ms(int(AVOID_S * 1000) + 1)
        before = held(site)
        for _ in range(4):
            await ground.send("orders", b"x")
        assert [after - earlier for after, earlier in zip(held(site), before, strict=True)] == [2, 2]
    finally:
        await again.close()


async def test_a_broker_that_says_nothing_holds_up_the_first_sends_alone(ground: Ground, site: Site) -> None:
    await ground.send("orders", b"x")
    arrived = asyncio.Event()

    def hang(_: RemotingCommand, __: Connection) -> None:
        arrived.set()

    site.servers[0].handlers = dict.fromkeys(site.servers[0].handlers, hang)
    sending = [asyncio.create_task(ground.send("orders", b"x")) for _ in range(4)]
    await arrived.wait()
    await asyncio.wait(sending[:2])
    ground.clock.advance_ms(int(SLOW_S * 1000) + 1)
    for task in sending:
        task.cancel()
    await asyncio.gather(*sending, return_exceptions=True)
    before = held(site)[1]
    async with asyncio.timeout(ASK_TIMEOUT_S - 1):
        for _ in range(4):
            await ground.send("orders", b"x")
    assert held(site)[1] == before + 4


async def test_without_any_nameserver_all_goes_on_as_before(ground: Ground, site: Site) -> None:
    await ground.send("orders", b"x")
    await ground.backend.group("g")
    await site.nameserver.close()
    await ground.backend._routes.refresh_all()
    ground.clock.advance_ms(11_000)
    for number in range(4):
        await ground.send("orders", b"%d" % number)
    assert sum(held(site)) == 5
    assert (await ground.backend.group("g")).name == "g"
    assert len(await ground.pop()) == 5
    assert await refused(ground.backend.route("unheard")) == "UNREACHABLE"


async def test_a_nameserver_that_forgot_everything_is_not_believed_at_once(ground: Ground, site: Site) -> None:
    await ground.backend.route("orders")
    for broker in site.brokers:
        site.routes.unregister(broker.name)
    await ground.backend._routes.refresh_all()
    await ground.send("orders", b"x")
    ground.clock.advance_ms(61_000)
    await ground.backend._routes.refresh_all()
    assert await refused(ground.backend.route("orders")) == "TOPIC_NOT_FOUND"


async def test_a_topic_that_was_deleted_is_not_there_any_more(ground: Ground, site: Site) -> None:
    await ground.send("orders", b"x")
    for broker in site.brokers:
        broker.topics.delete("orders")
    assert await refused(ground.backend.send([outgoing("orders")])) == "TOPIC_NOT_FOUND"
    assert await refused(ground.backend.route("orders")) == "TOPIC_NOT_FOUND"


async def test_what_comes_for_a_pop_that_was_cancelled_is_given_back_uncounted(
    ground: Ground, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    popping = asyncio.create_task(ground.backend.pop("broker-a", PopRequest("g", "orders", 30_000, wait_ms=20_000)))
    await ground.someone_waits()
    popping.cancel()
    await asyncio.gather(popping, return_exceptions=True)
    for _ in range(4):
        await ground.send("orders", b"x")
    request = PopRequest("g", "orders", 30_000, wait_ms=5_000)
    found = await ground.backend.pop("broker-a", request)
    if len(found) < 2:
        found += await ground.backend.pop("broker-a", request)
    assert [one.delivery_attempt for one in found] == [1, 1]


async def test_many_waiting_receives_leave_room_for_other_requests(
    ground: Ground, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "MAX_WAITING_PER_CONNECTION", 3)
    request = PopRequest("g", "orders", 30_000, wait_ms=20_000)
    waiting = [asyncio.create_task(ground.backend.pop("broker-a", request)) for _ in range(7)]
    while len(site.servers[0]._connections) < 4:  # noqa: ASYNC110 - the server has no event
        await asyncio.sleep(0.001)
    await ground.send("orders", b"x")
    assert len(site.servers[0]._connections) == 4, "one for what is answered at once, three for those who wait"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_lite_subscriptions_are_known_to_every_broker(ground: Ground, site: Site) -> None:
    site.create(TopicConfig("bind", MessageType.LITE))
    names = tuple(f"l{number}" for number in range(8))
    start = LiteStart(LiteStartKind.MIN)
    await ground.backend.sync_lite_subscription(LiteSync("c", "g", "bind", LiteAction.PARTIAL_ADD, names, start))
    for name in names:
        await ground.backend.send([outgoing("bind", name.encode(), MessageType.LITE, __LITE_TOPIC=name)])
    popped = await ground.pop("bind", client_id="c")
    popped += await ground.pop("bind", client_id="c")
    assert {one.handle.broker_name for one in popped} == {"broker-a", "broker-b"}


async def test_a_header_that_no_broker_would_read_fails_alone(ground: Ground) -> None:
    await ground.send("orders", b"x")
    request = PopRequest("g", "orders", 30_000, attempt_id="\x01" * 200_000)
    assert await refused(ground.backend.pop("broker-a", request)) == "REQUEST_TOO_LARGE"
    await ground.send("orders", b"x")


async def test_a_transaction_is_ended_by_another_proxy_than_the_one_that_began_it(ground: Ground, site: Site) -> None:
    site.create(TopicConfig("ledger", MessageType.TRANSACTION, read_queues=1, write_queues=1))
    other = RemoteBackend(site.nameserver_address, clock=ground.clock)
    for _ in range(4):
        half = outgoing("ledger", b"x", MessageType.TRANSACTION, TRAN_MSG="true", PGROUP="ledger")
        (receipt,) = await ground.backend.send([half])
        await other.end_transaction("ledger", receipt.message_id, Resolution.COMMIT)
    await other.close()
    assert held(site, "ledger") == [2, 2]


async def test_a_producer_that_is_new_here_is_told_to_each_broker_and_forgotten_when_it_goes(
    ground: Ground, site: Site
) -> None:
    topics = ["orders"]
    ground.backend.announce(lambda: topics)
    beats = ground.backend._heartbeats
    await beats.beat()
    assert [len(registry.connections("orders")) for registry in site.producers] == [1, 1]
    topics.clear()
    topics.append("others")
    site.create(TopicConfig("others"))
    await beats.beat()
    assert [len(registry.connections("orders")) for registry in site.producers] == [0, 0]
    assert [len(registry.connections("others")) for registry in site.producers] == [1, 1]


async def test_traces_are_stored_by_a_broker(ground: Ground, site: Site) -> None:
    site.create_own(TopicConfig(TRACE_TOPIC, read_queues=1, write_queues=1))
    await ground.backend.store_traces([OutgoingMessage(TRACE_TOPIC, b"trace", {"KEYS": "a"}, queue_id=0)])
    assert sum(held(site, TRACE_TOPIC)) == 1


async def test_who_takes_from_anywhere_waits_at_no_single_broker(ground: Ground, site: Site) -> None:
    request = PopRequest("g", "orders", 30_000, wait_ms=20_000, anywhere=True)
    for _ in range(3):
        waiting = asyncio.create_task(ground.backend.pop("broker-a", request))
        await ground.someone_waits()
        await ground.send("orders", b"x")
        (popped,) = await waiting
        assert popped.delivery_attempt == 1
    await site.servers[1].close()
    await ground.send("orders", b"y")
    (popped,) = await ground.backend.pop("broker-b", request)
    assert popped.message.body == b"y"


async def test_what_a_group_does_not_want_does_not_wake_it_again_and_again(ground: Ground) -> None:
    request = PopRequest("g", "orders", 30_000, wait_ms=300, filter=parse_tag_filter("b"), anywhere=True)
    await ground.send("orders", b"x", TAGS="a")
    assert await ground.backend.pop("broker-a", request) == []
