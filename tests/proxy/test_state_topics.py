"""A state topic over a backend that fails as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from millstream.model.backoff import Backoff
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError, NameRefused, Unreachable
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import PullRequest, PullResult, PullStatus, SendReceipt
from millstream.model.state_topics import AMQP_TOPIC
from millstream.model.topic import MessageType, Permission
from millstream.protocol.record import encode_record
from millstream.proxy import state_topics, state_writes
from millstream.proxy.backend import BrokerBackend, RouteQueue, TopicRoute
from millstream.proxy.state_topics import StateTopic

WAIT_S = 60.0
HERE = Address("127.0.0.1", 10911)


class Shelf:
    """One state topic at one broker; None where nobody made it."""

    def __init__(self) -> None:
        self.records: list[bytes] | None = None
        self.failure: MillstreamError | None = None
        self.is_routed = True
        self.arrived = asyncio.Event()
        self.pulls = 0
        self.stored: list[int] = []
        self.may_store = asyncio.Event()
        self.may_store.set()

    async def route(self, topic: str) -> TopicRoute:
        if self.records is None or not self.is_routed:
            raise NameRefused("TOPIC_NOT_FOUND", "There is none.")
        return TopicRoute(topic, MessageType.NORMAL, (RouteQueue("a", 0, Permission.READ),))

    async def brokers(self) -> list[str]:
        return ["a", "b"] if self.is_routed else ["b"]

    async def store_state(self, broker: str, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        assert broker == "a"
        await self.may_store.wait()
        if self.failure is not None:
            raise self.failure
        self.records = [] if self.records is None else self.records
        self.stored.append(len(messages))
        receipts = []
        for message in messages:
            offset = len(self.records)
            receipts.append(SendReceipt("", "", 0, offset, 0, 0, broker))
            self.records.append(
                encode_record(
                    message, queue_id=0, queue_offset=offset, log_offset=0, store_timestamp_ms=0, store_host=HERE
                )
            )
        self.arrived.set()
        return receipts

    async def pull(self, broker: str, request: PullRequest) -> PullResult:
        self.pulls += 1
        while True:
            if self.failure is not None:
                raise self.failure
            if self.records is None:
                raise NameRefused("TOPIC_NOT_FOUND", "There is none.")
            offset, end = request.queue_offset, len(self.records)
            if offset > end:
                return PullResult(PullStatus.OFFSET_ILLEGAL, end, 0, end)
            found = tuple(self.records[offset : offset + request.max_messages])
            if found or not request.wait_ms:
                status = PullStatus.FOUND if found else PullStatus.NOTHING_NEW
                return PullResult(status, offset + len(found), 0, end, found)
            self.arrived.clear()
            await self.arrived.wait()


class Table(dict[str, bytes]):
    """The values of all keys."""

    def apply(self, key: str, value: bytes | None, offset: int) -> None:
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def state(
    shelf: Shelf, table: Table, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StateTopic]:
    monkeypatch.setattr(state_topics, "_RETRY", Backoff(0.001, 0.001))
    monkeypatch.setattr(state_topics, "ABSENT_INTERVAL_S", 0.001)
    made = StateTopic(cast("BrokerBackend", shelf), AMQP_TOPIC, clock=clock)
    made.listen(table.apply, table.clear)
    await made.start()
    async with asyncio.timeout(WAIT_S):
        yield made
    await made.close()


async def turns(shelf: Shelf, count: int) -> None:
    """So many more reads."""
    until = shelf.pulls + count
    while shelf.pulls < until:  # noqa: ASYNC110 - the shelf has no event for it
        await asyncio.sleep(0.001)


async def test_a_broker_that_was_away_has_cost_nothing(state: StateTopic, shelf: Shelf, table: Table) -> None:
    await state.reach(await state.put("k", b"1"))
    shelf.failure = Unreachable("The broker is away.")
    shelf.arrived.set()
    await turns(shelf, 3)
    with pytest.raises(Unreachable):
        await state.put("k", b"2")
    assert table == {"k": b"1"}
    shelf.failure = None
    await state.reach(await state.put("k", b"3"))
    assert table == {"k": b"3"}


async def test_a_listener_that_fails_at_one_record_misses_none_of_those_that_came_with_it(
    state: StateTopic, table: Table
) -> None:
    def refuse(key: str, value: bytes | None, offset: int) -> None:
        if key == "bad":
            raise ZeroDivisionError

    state.listen(refuse)
    offsets = await asyncio.gather(*(state.put(key, b"1") for key in ("a", "b", "bad", "c", "d")))
    await state.reach(max(offsets))
    assert set(table) == {"a", "b", "bad", "c", "d"}


async def test_a_broker_that_the_nameservers_forgot_still_has_the_topic(
    state: StateTopic, shelf: Shelf, table: Table
) -> None:
    await state.reach(await state.put("k", b"1"))
    shelf.is_routed = False
    await state.put("k", b"2")
    shelf.is_routed = True
    await state.reach(await state.put("k", b"3"))
    assert table == {"k": b"3"}


async def test_all_begins_anew_where_the_topic_lost_its_records(state: StateTopic, shelf: Shelf, table: Table) -> None:
    await state.put("old", b"1")
    await state.reach(await state.put("kept", b"1"))
    assert shelf.records is not None
    shelf.failure = Unreachable("The broker is away.")
    shelf.arrived.set()
    await turns(shelf, 2)
    shelf.records, shelf.failure = [shelf.records[0]], None
    await turns(shelf, 3)
    assert table == {"old": b"1"}
    await state.reach(await state.put("new", b"2"))
    assert table == {"old": b"1", "new": b"2"}


async def test_all_is_read_again_after_a_silence_in_which_deletions_may_have_gone(
    state: StateTopic, shelf: Shelf, table: Table, clock: ManualClock
) -> None:
    await state.put("a", b"1")
    await state.reach(await state.put("b", b"1"))
    shelf.failure = Unreachable("The broker is away.")
    shelf.arrived.set()
    await turns(shelf, 2)
    # What was compacted away meanwhile: the value and the deletion of `b`.
    assert shelf.records is not None
    table["b"] = b"deleted elsewhere"
    shelf.records = [shelf.records[0], shelf.records[0]]
    clock.advance_ms(24 * 3600 * 1000)
    shelf.failure = None
    await state.reach(await state.put("c", b"1"))
    assert table == {"a": b"1", "c": b"1"}


async def test_puts_that_come_while_another_is_stored_are_stored_together(state: StateTopic, shelf: Shelf) -> None:
    shelf.may_store.clear()
    first = asyncio.create_task(state.put("k0", b"x"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rest = [asyncio.create_task(state.put(f"k{number}", b"x")) for number in range(1, 10)]
    await asyncio.sleep(0)
    shelf.may_store.set()
    assert await asyncio.gather(first, *rest) == list(range(10))
    assert shelf.stored == [1, 9]


async def test_more_puts_than_may_wait_are_refused(
    state: StateTopic, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_writes, "MAX_WAITING_PUTS", 2)
    shelf.may_store.clear()
    puts = [asyncio.create_task(state.put(f"k{number}", b"x")) for number in range(8)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    shelf.may_store.set()
    results = await asyncio.gather(*puts, return_exceptions=True)
    refusals = [one.name for one in results if isinstance(one, MillstreamError)]
    assert set(refusals) == {"TOO_MANY_REQUESTS"}
    assert 2 <= len(results) - len(refusals) <= 4


async def test_who_waits_while_it_closes_hears_so(shelf: Shelf) -> None:
    state = StateTopic(cast("BrokerBackend", shelf), AMQP_TOPIC)
    await state.start()
    waiting = asyncio.create_task(state.reach(7))
    await asyncio.sleep(0)
    await state.close()
    with pytest.raises(MillstreamError) as refusal:
        await waiting
    assert refusal.value.name == "UNREACHABLE"
    for late in (state.put("k", b"1"), state.reach(7)):
        with pytest.raises(MillstreamError):
            await late
