"""What an outlet holds back, sends again and gives up, over a lane that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from millstream.ingest.event_batch import EventBatch, Labels
from millstream.ingest.topic_writer import MAX_PAUSE_S, MIN_PAUSE_S, InputStatistics, Target, TopicWriter
from millstream.model.backoff import Backoff
from millstream.model.errors import MessageRefused, Unreachable


class PlayedLane:
    """Keeps what it was sent; `judge` may raise. `gate` holds sends up while it is cleared."""

    def __init__(self, judge: Callable[[bytes], None] = lambda body: None, max_rows: int = 1000) -> None:
        self.max_rows = max_rows
        self.gate = asyncio.Event()
        self.gate.set()
        self.judge = judge
        self.failures: list[Exception] = []
        self.batches: list[tuple[str, list[bytes]]] = []
        self.event_batches: list[EventBatch] = []

    async def send(self, topic: str, event_batches: Sequence[EventBatch]) -> None:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        bodies = [body for event_batch in event_batches for body in event_batch.bodies]
        for body in bodies:
            self.judge(body)
        self.batches.append((topic, bodies))
        self.event_batches += event_batches


def outlet_over(
    lane: PlayedLane, target: Target | None = None, said: list[str] | None = None
) -> tuple[TopicWriter, InputStatistics]:
    async def at_once(_pause_s: float) -> None:
        await asyncio.sleep(0)

    tally = InputStatistics()
    say = (said if said is not None else []).append
    outlet = TopicWriter(lane, target or Target("events"), tally, say, hold_s=0.001, pause=at_once)
    return outlet, tally


async def test_parcels_keep_their_order_and_share_batches_up_to_the_limit_of_rows() -> None:
    lane = PlayedLane(max_rows=4)
    outlet, tally = outlet_over(lane)
    for number in range(6):
        await outlet.put(EventBatch([b"%d" % number, b"+"]))
    outlet.start()
    assert await outlet.close(10) == 0
    assert [bodies for _, bodies in lane.batches] == [
        [b"0", b"+", b"1", b"+"],
        [b"2", b"+", b"3", b"+"],
        [b"4", b"+", b"5", b"+"],
    ]
    assert tally.stored == 12


async def test_a_broker_that_is_away_gets_the_same_batch_until_it_takes_it_and_both_are_told_once() -> None:
    lane, said = PlayedLane(), []
    lane.failures = [Unreachable("nobody at 127.0.0.1:1"), Unreachable("nobody at 127.0.0.1:1")]
    outlet, tally = outlet_over(lane, said=said)
    outlet.start()
    stored = await outlet.put(EventBatch([b"a"]))
    await stored
    assert lane.batches == [("events", [b"a"])]
    assert tally.retries == 2
    assert len(said) == 2
    assert "nobody at 127.0.0.1:1" in said[0]
    assert said[1] == "events takes events again"
    await outlet.close(10)


async def test_a_broker_that_stays_away_is_tried_at_growing_intervals_up_to_the_longest() -> None:
    lane, pauses = PlayedLane(), []
    lane.failures = [Unreachable("nobody at 127.0.0.1:1")] * 8

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)

    full = Backoff(MIN_PAUSE_S, MAX_PAUSE_S, random=lambda: 0.0)
    outlet = TopicWriter(
        lane, Target("events"), InputStatistics(), lambda _: None, hold_s=0.001, pause=pause, backoff=full
    )
    outlet.start()
    await (await outlet.put(EventBatch([b"a"])))
    await outlet.close(10)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


async def test_put_waits_and_offer_refuses_while_too_many_bytes_wait() -> None:
    lane = PlayedLane()
    lane.gate.clear()
    outlet, _ = outlet_over(lane, Target("events", waiting_bytes=1000))
    outlet.start()
    await outlet.put(EventBatch([b"x" * 900]))
    assert outlet.offer(EventBatch([b"y" * 900])) is None
    waiting = asyncio.ensure_future(outlet.put(EventBatch([b"z" * 900])))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    lane.gate.set()
    await (await waiting)
    assert [bodies for _, bodies in lane.batches] == [[b"x" * 900], [b"z" * 900]]
    await outlet.close(10)


async def test_a_single_parcel_may_be_larger_than_what_may_wait() -> None:
    outlet, _ = outlet_over(PlayedLane(), Target("events", waiting_bytes=10))
    outlet.start()
    await (await outlet.put(EventBatch([b"x" * 900])))
    await outlet.close(10)


async def test_an_event_that_is_refused_is_left_out_and_all_others_are_stored() -> None:
    def judge(body: bytes) -> None:
        if body == b"bad":
            raise MessageRefused("BODY_TOO_LARGE", "too large")

    lane, said = PlayedLane(judge), []
    outlet, tally = outlet_over(lane, said=said)
    outlet.start()
    good, bad = await outlet.put(EventBatch([b"a", b"b"])), await outlet.put(EventBatch([b"c", b"bad", b"d"]))
    await good
    with pytest.raises(MessageRefused):
        await bad
    assert [body for _, bodies in lane.batches for body in bodies] == [b"a", b"b", b"c", b"d"]
    assert (tally.stored, tally.refused, len(said)) == (4, 1, 1)
    await outlet.close(10)


async def test_a_stop_that_finds_no_broker_says_how_many_events_are_left_and_cancels_their_futures() -> None:
    lane = PlayedLane()
    lane.gate.clear()
    outlet, _ = outlet_over(lane)
    outlet.start()
    stored = await outlet.put(EventBatch([b"a", b"b"]))
    assert await outlet.close(0.01) == 2
    assert stored.cancelled()


async def test_dead_letters_go_to_their_own_topic_in_batches_of_their_own() -> None:
    lane = PlayedLane()
    outlet, tally = outlet_over(lane, Target("events", "dead"))
    for event_batch in (EventBatch([b"a"]), EventBatch([b"b"], dead=True), EventBatch([b"c"])):
        await outlet.put(event_batch)
    outlet.start()
    await outlet.close(10)
    assert lane.batches == [("events", [b"a"]), ("dead", [b"b"]), ("events", [b"c"])]
    assert tally.dead == 1


async def test_keys_and_tags_are_taken_from_the_json_of_events_where_they_are_fit_for_it() -> None:
    lane = PlayedLane()
    outlet, _ = outlet_over(lane, Target("events", labels=Labels("user.id", "plain", "kind")))
    outlet.start()
    bodies = [
        b'{"user": {"id": "u 1"}, "kind": "login"}',
        b'{"user": {"id": 7}, "kind": "a|b"}',
        b'{"user.id": true, "kind": " "}',
        b'{"user": [1]}',
        b'{"user": {"id": "a\\nb"}}',
        b"no json",
    ]
    await (await outlet.put(EventBatch(bodies)))
    assert lane.event_batches[0].keys == ["u 1", "7", "true", None, None, None]
    assert lane.event_batches[0].tags == ["login", "plain", "plain", "plain", "plain", "plain"]
    await outlet.close(10)
