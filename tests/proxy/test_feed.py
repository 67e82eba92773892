"""A feed over a backend that fails as the test says: what is lost is told, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from millstream.model.backoff import Backoff
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError, NameRefused, Unreachable
from millstream.model.message import Address, OutgoingMessage, StoredMessage
from millstream.model.operations import PullRequest, PullResult, PullStatus, QueuePoint
from millstream.model.topic import MessageType, Permission
from millstream.protocol.record import encode_record
from millstream.proxy import feed as feeds
from millstream.proxy.backend import BrokerBackend, RouteQueue, TopicRoute
from millstream.proxy.feed import FeedPlace, TopicFeed

WAIT_S = 60.0
BOTH = Permission.READ | Permission.WRITE
HERE = Address("127.0.0.1", 10911)


class Shelf:
    """One topic whose queues are lists of records; `first` is the offset of the first one that is there."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.queues: dict[tuple[str, int], list[bytes]] = {("a", 0): []}
        self.first = 0
        self.failure: MillstreamError | None = None
        self.is_static = False
        self.arrived = asyncio.Event()
        self.pulls = 0

    def store(self, body: bytes, broker: str = "a", queue_id: int = 0, **properties: str) -> None:
        held = self.queues[broker, queue_id]
        message = OutgoingMessage("orders", body, {"k": "v", **properties}, born_host=HERE)
        held.append(
            encode_record(
                message,
                queue_id=queue_id,
                queue_offset=len(held),
                log_offset=0,
                store_timestamp_ms=self.clock.now_ms(),
                store_host=HERE,
            )
        )
        self.arrived.set()

    async def route(self, topic: str) -> TopicRoute:
        if not self.queues:
            raise NameRefused("TOPIC_NOT_FOUND", "There is none.")
        queues = tuple(RouteQueue(broker, number, BOTH) for broker, number in sorted(self.queues))
        return TopicRoute(topic, MessageType.NORMAL, queues, self.is_static)

    async def find_offset(self, broker: str, topic: str, queue_id: int, point: QueuePoint, value: int = 0) -> int:
        return len(self.queues[broker, queue_id]) if point is QueuePoint.LAST else 0

    async def pull(self, broker: str, request: PullRequest) -> PullResult:
        self.pulls += 1
        offset = request.queue_offset
        while True:
            if self.failure is not None:
                raise self.failure
            held = self.queues.get((broker, request.queue_id))
            if held is None:
                raise NameRefused("QUEUE_NOT_FOUND", "It is elsewhere.")
            end = len(held)
            if not self.first <= offset <= end:
                nearest = self.first if offset < self.first else end
                return PullResult(PullStatus.OFFSET_ILLEGAL, nearest, self.first, end)
            found = tuple(held[offset : offset + request.max_messages])
            if found:
                return PullResult(PullStatus.FOUND, offset + len(found), self.first, end, found)
            self.arrived.clear()
            await self.arrived.wait()


class Listener:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.lost = 0
        self.fails = False
        self.came = asyncio.Event()

    def deliver(self, topic: str, messages: Sequence[StoredMessage], place: FeedPlace) -> None:
        self.came.set()
        if self.fails:
            raise KeyError(topic)
        self.bodies += [message.body for message in messages]

    def note_gap(self, topic: str, lost: int, place: FeedPlace) -> None:
        self.lost += lost
        self.came.set()

    async def wait_for(self, *bodies: bytes) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.bodies != list(bodies):
                self.came.clear()
                await self.came.wait()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shelf(clock: ManualClock) -> Shelf:
    return Shelf(clock)


@pytest.fixture
async def feed(shelf: Shelf, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TopicFeed]:
    monkeypatch.setattr(feeds, "ROUTE_INTERVAL_S", 0.01)
    monkeypatch.setattr(feeds, "_RETRY", Backoff(0.001, 0.001))
    made = TopicFeed(cast("BrokerBackend", shelf), clock=clock)
    yield made
    await made.close()


async def _turns(shelf: Shelf, count: int) -> None:
    """So many more reads."""
    until = shelf.pulls + count
    async with asyncio.timeout(WAIT_S):
        while shelf.pulls < until:  # noqa: ASYNC110 - the shelf has no event for it
            await asyncio.sleep(0.001)


async def test_a_broker_that_was_away_has_cost_nothing(feed: TopicFeed, shelf: Shelf) -> None:
    listener = Listener()
    await feed.follow("orders", listener)
    shelf.store(b"1")
    await listener.wait_for(b"1")
    shelf.failure = Unreachable("The broker is away.")
    shelf.store(b"2")
    await _turns(shelf, 3)
    assert (listener.bodies, listener.lost) == ([b"1"], 0)
    shelf.failure = None
    await listener.wait_for(b"1", b"2")
    assert (listener.lost, feed.skipped) == (0, 0)


async def test_records_that_were_removed_meanwhile_are_told_as_a_gap(feed: TopicFeed, shelf: Shelf) -> None:
    listener, other = Listener(), Listener()
    await feed.follow("orders", listener)
    await feed.follow("orders", other)
    shelf.failure = Unreachable("The broker is away.")
    for number in range(5):
        shelf.store(b"%d" % number)
    await _turns(shelf, 2)
    shelf.first, shelf.failure = 3, None
    await listener.wait_for(b"3", b"4")
    assert (listener.lost, other.lost, feed.skipped) == (3, 3, 3)


async def test_a_queue_that_lost_its_end_is_followed_from_its_new_end_without_a_gap(
    feed: TopicFeed, shelf: Shelf
) -> None:
    listener = Listener()
    await feed.follow("orders", listener)
    for number in range(3):
        shelf.store(b"%d" % number)
    await listener.wait_for(b"0", b"1", b"2")
    shelf.failure = Unreachable("The broker is away.")
    shelf.arrived.set()
    await _turns(shelf, 2)
    del shelf.queues["a", 0][1:]
    shelf.failure = None
    await _turns(shelf, 2)
    shelf.store(b"new")
    await listener.wait_for(b"0", b"1", b"2", b"new")
    assert listener.lost == 0


async def test_a_reader_that_is_too_far_behind_goes_to_the_end_and_says_so(
    feed: TopicFeed, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_BEHIND_RECORDS", 10)
    listener = Listener()
    await feed.follow("orders", listener)
    shelf.failure = Unreachable("The broker is away.")
    for number in range(11):
        shelf.store(b"%d" % number)
    await _turns(shelf, 2)
    shelf.failure = None
    async with asyncio.timeout(WAIT_S):
        await listener.came.wait()
    shelf.store(b"new")
    await listener.wait_for(b"new")
    assert listener.lost == 11


async def test_messages_whose_time_is_over_do_not_come(feed: TopicFeed, shelf: Shelf, clock: ManualClock) -> None:
    listener = Listener()
    await feed.follow("orders", listener)
    shelf.store(b"1", __EXPIRES_MS=str(clock.now_ms()))
    shelf.store(b"2", __EXPIRES_MS=str(clock.now_ms() + 1))
    await listener.wait_for(b"2")
    assert (feed.expired, listener.lost) == (1, 0)


async def test_a_listener_that_fails_does_not_end_the_feed_of_others(feed: TopicFeed, shelf: Shelf) -> None:
    listener, broken = Listener(), Listener()
    broken.fails = True
    await feed.follow("orders", listener)
    await feed.follow("orders", broken)
    shelf.store(b"1")
    shelf.store(b"2")
    await listener.wait_for(b"1", b"2")


async def test_the_queues_of_a_broker_that_left_and_came_back_go_on_where_they_were(
    feed: TopicFeed, shelf: Shelf
) -> None:
    shelf.queues["b", 0] = []
    listener = Listener()
    await feed.follow("orders", listener)
    shelf.store(b"1", "b")
    await listener.wait_for(b"1")
    held = shelf.queues.pop(("b", 0))
    shelf.arrived.set()
    await _turns(shelf, 2)
    shelf.queues["b", 0] = held
    shelf.store(b"2", "b")
    await listener.wait_for(b"1", b"2")


async def test_a_queue_of_a_static_topic_that_moves_goes_on_at_its_new_broker(feed: TopicFeed, shelf: Shelf) -> None:
    shelf.is_static = True
    listener = Listener()
    await feed.follow("orders", listener)
    shelf.store(b"1")
    await listener.wait_for(b"1")
    shelf.queues["b", 0] = shelf.queues.pop(("a", 0))
    shelf.store(b"2", "b")
    await listener.wait_for(b"1", b"2")
    assert feed.readers == 1


async def test_no_more_queues_are_followed_than_may_be(
    feed: TopicFeed, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_READERS", 1)
    await feed.follow("orders", Listener())
    await feed.follow("orders", Listener())
    with pytest.raises(MillstreamError, match="MS-") as refusal:
        await feed.follow("others", Listener())
    assert (refusal.value.name, feed.readers) == ("TOO_MANY_REQUESTS", 1)


async def test_who_comes_while_it_closes_follows_nothing(feed: TopicFeed, shelf: Shelf) -> None:
    coming = asyncio.create_task(feed.follow("orders", Listener()))
    await asyncio.sleep(0)
    await feed.close()
    with pytest.raises(MillstreamError):
        await coming
    assert (feed.readers, shelf.pulls) == (0, 0)
