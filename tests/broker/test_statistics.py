"""What a broker counts: messages in and out, deliveries again, dead letters, delayed messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_bench import Bench, open_bench

from millstream.broker import statistics
from millstream.broker.statistics import Outgoing
from millstream.model.errors import MessageRefused
from millstream.model.group import GroupConfig
from millstream.model.lite import LITE_PREFIX
from millstream.model.message import OutgoingMessage
from millstream.model.operations import Resolution
from millstream.model.topic import MessageType, TopicConfig
from patience import eventually


def out(bench: Bench, group: str = "g", topic: str = "t") -> Outgoing:
    return dict(bench.broker.maintenance.statistics.outgoing.rows())[group, topic]


async def test_what_was_refused_is_not_counted(bench: Bench) -> None:
    await bench.send("a", "b")
    with pytest.raises(MessageRefused):
        await bench.send("")
    rows = list(bench.broker.maintenance.statistics.incoming.rows())
    assert [(key, incoming.messages) for key, incoming in rows] == [(("t", "NORMAL"), 2)]


async def test_each_delivery_is_counted_and_those_again_apart(bench: Bench) -> None:
    await bench.send("aa", "bbb")
    await bench.pop(invisible_ms=1000)
    bench.clock.advance_ms(1000)
    await bench.pop()
    assert (out(bench).messages, out(bench).size_bytes, out(bench).again) == (4, 10, 2)


async def test_a_pop_that_finds_nothing_leaves_no_trace(bench: Bench) -> None:
    await bench.pop()
    assert not list(bench.broker.maintenance.statistics.outgoing.rows())


async def test_pulled_records_are_counted_with_their_bytes_in_the_log(bench: Bench) -> None:
    await bench.send("a", "b", "c", TAGS="x")
    result = await bench.pull(1)
    assert out(bench).messages == 2
    assert out(bench).size_bytes == sum(len(record) for record in result.records)
    await bench.pull(0, expression="none")
    assert out(bench).messages == 2


async def test_raw_records_count_as_the_messages_that_they_hold(bench: Bench) -> None:
    await bench.send("a", "b", "c")
    result = await bench.pull(0, raw=True)
    assert len(result.records) == 1
    assert out(bench).messages == 3


async def test_messages_of_a_mixed_topic_are_counted_by_their_own_type(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("mixed", MessageType.MIXED))
    await bench.send("a", topic="mixed")
    await bench.send("b", "c", topic="mixed", __SHARDINGKEY="k")
    await bench.send("d", topic="mixed", TIMER_DELAY_SEC="60")
    counted = {
        key[1]: incoming.messages for key, incoming in bench.broker.maintenance.statistics.incoming.rows() if key
    }
    assert counted == {"NORMAL": 1, "FIFO": 2, "DELAY": 1}
    assert bench.broker.maintenance.statistics.timers["mixed"].scheduled == 1


async def test_a_dead_letter_counts_for_its_group_and_the_topic_it_came_from(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("g", max_attempts=1))
    await bench.send("a")
    await bench.pop(invisible_ms=1000)
    bench.clock.advance_ms(1000)
    assert await bench.pop() == []
    assert bench.broker.maintenance.statistics.dead_letters["g", "t"].number == 1


async def test_a_delayed_message_is_counted_when_it_is_delivered_with_how_late_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.delivery.timers.POLL_S", 0.002)
    async with open_bench(tmp_path) as bench:
        bench.broker.topics.create(TopicConfig("later", MessageType.DELAY))
        message = OutgoingMessage("later", b"x", {"TIMER_DELAY_SEC": "10"})
        await bench.broker.delivery.send([message])
        counted = bench.broker.maintenance.statistics
        assert (counted.timers["later"].scheduled, counted.timers["later"].settled) == (1, 0)
        assert bench.broker.maintenance.timers.counts((60,))[0] + bench.broker.maintenance.timers.unscheduled == 1
        await eventually(lambda: not bench.broker.maintenance.timers.unscheduled)
        bench.clock.advance_ms(10_400)
        await eventually(lambda: counted.timers["later"].settled == 1)
        assert counted.lateness.total == 400
        assert counted.lateness.counts[counted.lateness.bounds.index(500)] == 1


async def test_delays_are_counted_by_topic_as_they_were_asked_for(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("mixed", MessageType.MIXED))
    for delay_s in ("30", "600", "4000"):
        await bench.send("a", topic="mixed", TIMER_DELAY_SEC=delay_s)
    await bench.send("b", topic="mixed")
    delays = bench.broker.maintenance.statistics.timers["mixed"].delays
    assert (delays.total, delays.counts[:4]) == (4630, [1, 1, 0, 1])


async def test_timers_tell_how_long_the_first_of_them_is_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.delivery.timers.POLL_S", 3600)
    async with open_bench(tmp_path, takes=MessageType.DELAY) as bench:
        timers = bench.broker.maintenance.timers
        for delay_s in ("10", "20"):
            await bench.send("x", TIMER_DELAY_SEC=delay_s)
        await eventually(lambda: not timers.unscheduled)
        assert (timers.schedule_lag_ms, timers.delivery_lag_ms) == (0, 0)
        bench.clock.advance_ms(10_400)
        assert timers.delivery_lag_ms == 400


async def test_timers_tell_for_how_long_a_message_waits_to_be_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.delivery.timers.Timers._schedule", lambda _timers: False)
    async with open_bench(tmp_path, takes=MessageType.DELAY) as bench:
        await bench.send("x", TIMER_DELAY_SEC="10")
        bench.clock.advance_ms(700)
        assert (bench.broker.maintenance.timers.unscheduled, bench.broker.maintenance.timers.schedule_lag_ms) == (
            1,
            700,
        )


async def test_transactions_are_counted_by_how_their_producers_ended_them_and_once(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("tx", MessageType.TRANSACTION))
    for name in ("a", "b", "c"):
        await bench.send(name, topic="tx", UNIQ_KEY=name, TRAN_MSG="true")
    bench.clock.advance_ms(400)
    for _ in range(2):
        await bench.broker.delivery.end_transaction("tx", "a", Resolution.COMMIT)
    await bench.broker.delivery.end_transaction("tx", "b", Resolution.ROLLBACK)
    await bench.broker.delivery.end_transaction("tx", "c", Resolution.UNKNOWN)
    traffic = bench.broker.maintenance.statistics.transactions["tx"]
    assert (traffic.committed, traffic.rolled_back) == (1, 1)
    assert traffic.finishes.total == 800
    assert bench.broker.maintenance.statistics.incoming["tx", "TRANSACTION"].messages == 3


async def test_a_deleted_topic_or_group_is_counted_no_longer(bench: Bench) -> None:
    await bench.send("a")
    for group in ("g", "h"):
        await bench.pop(group)
    bench.broker.groups.delete("h")
    assert [key for key, _ in bench.broker.maintenance.statistics.outgoing.rows()] == [("g", "t")]
    bench.broker.topics.delete("t")
    assert not list(bench.broker.maintenance.statistics.outgoing.rows())
    assert not list(bench.broker.maintenance.statistics.incoming.rows())


@pytest.fixture
async def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(statistics, "MAX_COUNTED_PAIRS", 2)
    async with open_bench(tmp_path / "narrow") as opened:
        yield opened


async def test_pairs_over_the_limit_share_one_count(narrow: Bench) -> None:
    await narrow.send("a")
    for group in ("g1", "g2", "g3", "g4"):
        await narrow.pop(group)
    rows = {key: outgoing.messages for key, outgoing in narrow.broker.maintenance.statistics.outgoing.rows()}
    assert rows == {("g1", "t"): 1, ("g2", "t"): 1, None: 2}


async def test_positions_are_told_for_so_many_pairs_and_the_others_are_numbered(bench: Bench) -> None:
    await bench.send("a", "b")
    await bench.pop("popping", max_messages=1)
    for group in ("r1", "r2", "r3"):
        bench.broker.queues.commit(group, "t", 0, 1)
    positions, left_out = bench.broker.queues.all_offsets(2)
    told = {(one.group, one.queue_id): (one.committed, one.next_offset, one.in_flight) for one in positions}
    assert told["popping", 0] == (0, 1, 1)
    assert told["r1", 0] == (1, None, None)
    assert {group for group, _ in told} == {"popping", "r1"}
    assert left_out == 2


async def test_nothing_is_told_of_where_groups_stand_in_lite_topics(bench: Bench) -> None:
    table = bench.broker._offsets
    table.commit("g", f"{LITE_PREFIX}bind$one", 0, 5)
    assert table.positions(10) == ([], 0)
