"""What a feed promises, over a broker in this process and over one behind sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from contract_ground import Ground, outgoing, refused

from millstream.model.message import StoredMessage
from millstream.model.topic import TopicConfig
from millstream.proxy import feed as feeds
from millstream.proxy.feed import FeedPlace, TopicFeed

WAIT_S = 60.0


class Listener:
    """What came, by queue."""

    def __init__(self) -> None:
        self.bodies: dict[int, list[bytes]] = {}
        self.lost = 0
        self.came = asyncio.Event()

    def deliver(self, topic: str, messages: Sequence[StoredMessage], place: FeedPlace) -> None:
        for message in messages:
            self.bodies.setdefault(message.queue_id, []).append(message.body)
        self.came.set()

    def note_gap(self, topic: str, lost: int, place: FeedPlace) -> None:
        self.lost += lost
        self.came.set()

    @property
    def all(self) -> list[bytes]:
        return sorted(body for bodies in self.bodies.values() for body in bodies)

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.all) < count:
                self.came.clear()
                await self.came.wait()


@pytest.fixture
async def feed(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TopicFeed]:
    monkeypatch.setattr(feeds, "ROUTE_INTERVAL_S", 0.02)
    made = TopicFeed(ground.backend, clock=ground.clock)
    yield made
    await made.close()


async def test_who_follows_a_topic_gets_what_is_stored_from_then_on_in_each_queues_order(
    ground: Ground, feed: TopicFeed
) -> None:
    await ground.send("orders", b"before")
    early, late = Listener(), Listener()
    following = await feed.follow("orders", early)
    for number in range(6):
        await ground.send("orders", b"%d" % number)
    await early.wait_for(6)
    await feed.follow("orders", late)
    await ground.send("orders", b"6")
    await late.wait_for(1)
    await early.wait_for(7)
    assert early.all == [b"%d" % number for number in range(7)]
    assert all(bodies == sorted(bodies) for bodies in early.bodies.values())
    assert late.all == [b"6"]
    assert feed.readers == 2
    following.end()
    following.end()
    await ground.send("orders", b"7")
    await late.wait_for(2)
    assert len(early.all) == 7


async def test_a_topic_that_nobody_follows_any_more_is_not_read(ground: Ground, feed: TopicFeed) -> None:
    all_following = [await feed.follow("orders", Listener()) for _ in range(2)]
    all_following[0].end()
    assert feed.readers == 2
    all_following[1].end()
    assert feed.readers == 0


async def test_a_missing_topic_cannot_be_followed(ground: Ground, feed: TopicFeed) -> None:
    assert await refused(feed.follow("missing", Listener())) == "TOPIC_NOT_FOUND"
    assert feed.readers == 0


async def test_queues_that_are_added_are_followed_from_their_first_message(ground: Ground, feed: TopicFeed) -> None:
    listener = Listener()
    await feed.follow("orders", listener)
    ground.broker.topics.update(TopicConfig("orders", read_queues=4, write_queues=4))
    await ground.refresh_routes()
    for number in range(8):
        await ground.backend.send([replace(outgoing("orders", b"%d" % number), queue_id=number % 4)])
        ground.clock.advance_ms(1)
    await listener.wait_for(8)
    assert {queue: len(bodies) for queue, bodies in listener.bodies.items()} == {0: 2, 1: 2, 2: 2, 3: 2}
    assert listener.lost == 0


async def test_a_topic_that_is_made_anew_is_followed_from_its_beginning(ground: Ground, feed: TopicFeed) -> None:
    listener = Listener()
    await feed.follow("orders", listener)
    await ground.send("orders", b"old")
    await listener.wait_for(1)
    await ground.backend.remove_topic("orders")
    async with asyncio.timeout(WAIT_S):
        while feed.readers:  # noqa: ASYNC110 - the feed has no event for it
            await asyncio.sleep(0.01)
    await ground.backend.declare_topic(TopicConfig("orders", read_queues=1, write_queues=1))
    await ground.send("orders", b"new")
    await listener.wait_for(2)
    assert listener.all == [b"new", b"old"]
