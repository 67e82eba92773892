"""Numbers of queues, for clients that name no brokers: given once, the same at all proxies."""

from __future__ import annotations

from pathlib import Path

from contract_ground import running_site
from front_ground import Front, Peer, running_front
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.clock import ManualClock
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.remoting.bodies import TopicRouteData, decode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.proxy.backend import RouteQueue
from millstream.proxy.remoting.queue_numbers import _places, _read, _text, extend_blocks

BOTH = Permission.READ | Permission.WRITE
clusters = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4))


@given(st.lists(clusters, max_size=6))
def test_a_number_is_given_once_and_to_one_queue(changes: list[dict[str, int]]) -> None:
    blocks: tuple[tuple[str, int], ...] = ()
    for brokers in changes:
        queues = [RouteQueue(name, number, BOTH) for name, count in brokers.items() for number in range(count)]
        before, blocks = _places(blocks), extend_blocks(blocks, queues)
        places = _places(blocks)
        assert places[: len(before)] == before
        assert len(set(places)) == len(places)
        assert {(queue.broker_name, queue.queue_id) for queue in queues} <= set(places)
        assert extend_blocks(blocks, queues) == blocks
        assert _read(_text(blocks)) == blocks


@given(st.text(max_size=40))
def test_any_text_may_stand_where_the_list_is_kept(text: str) -> None:
    assert _places(_read(text)) is not None


def test_a_list_that_no_topic_could_have_is_none() -> None:
    assert _read("a:99999;b:x") == ()
    assert _read("a:65537") == ()


async def asked(front: Front, peer: Peer) -> int:
    """How many queues an old client is told of, by a proxy that has just looked."""
    await front.backend._routes.refresh("orders")
    route = decode_body(TopicRouteData, (await peer.ask(RequestCode.GET_ROUTE_BY_TOPIC, topic="orders")).body)
    return route.queue_datas[0].read_queue_nums


async def send(peer: Peer, number: int) -> int:
    """Under which number a message is stored that was sent to a number."""
    sent = await peer.ask(
        RequestCode.SEND_MESSAGE_V2, b"x", a="makers", b="orders", c="TBW102", d=4, e=number, f=0, g=1, h=0, i="", j=0,
        k="false", m="false",
    )  # fmt: skip
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    return int(sent.ext["queueId"])


async def old_client(front: Front) -> Peer:
    peer = await front.connect("old")
    peer.version = 121
    return peer


async def test_queues_keep_their_numbers_while_brokers_come_and_go(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_site(tmp_path, clock, 3) as site:
        for broker in site.brokers[1:]:
            broker.topics.create(TopicConfig("orders", read_queues=2, write_queues=2))
        async with running_front(site, clock) as first:
            peer = await old_client(first)
            assert await asked(first, peer) == 4
            site.brokers[0].topics.create(TopicConfig("orders", read_queues=2, write_queues=2))
            assert await asked(first, peer) == 6
            assert await send(peer, 5) == 5
            assert site.brokers[0].maintenance.store.max_offset("orders", 1) == 1, "broker-a came last"
        async with running_front(site, clock) as second:
            peer = await old_client(second)
            assert await asked(second, peer) == 6
            assert await send(peer, 0) == 0
            assert site.brokers[1].maintenance.store.max_offset("orders", 0) == 1
            site.brokers[1].topics.delete("orders")
            assert await asked(second, peer) == 6
            assert await send(peer, 5) == 5
            assert site.brokers[0].maintenance.store.max_offset("orders", 1) == 2
            assert await send(peer, 0) > 1, "what is sent to a queue that is not there goes to another one"
            away = await peer.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
            assert away.code == ResponseCode.INVALID_PARAMETER


async def test_numbers_hold_while_no_nameserver_answers(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_site(tmp_path, clock, 2) as site:
        site.create(TopicConfig("orders", read_queues=1, write_queues=1))
        async with running_front(site, clock) as front:
            peer = await old_client(front)
            assert await asked(front, peer) == 2
            await site.nameserver.close()
            clock.advance_ms(60_000)
            route = await peer.ask(RequestCode.GET_ROUTE_BY_TOPIC, topic="orders")
            assert decode_body(TopicRouteData, route.body).queue_datas[0].read_queue_nums == 2
            assert await send(peer, 1) == 1
