"""Silent sources: ticks that wake a job, and queues that hold the watermark up no longer than they may."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream.streams.connectors.rocketmq.reader import TopicStreamReader
from millstream.streams.operators.operator import START_OF_TIME_US
from millstream.streams.operators.state import OperatorState
from millstream.streams.spark.operators.clocks import Clocks, Seen
from millstream.streams.spark.source.position import Position, QueueSpan, Slice
from millstream.streams.spark.source.reading import Alarm
from millstream.streams.spark.source.rows import END_OF_TIME_MS, WAKE_TIME_MS
from millstream.streams.spark.source.spec import SourceSpec
from millstream.streams.spark.source.topic_partition import TopicPartition


@dataclass
class Log:
    """A topic of one queue."""

    end: int = 0
    asked: list[str] = field(default_factory=list)

    def spans(self, topic: str) -> dict[str, QueueSpan]:
        return {"q/0": QueueSpan(0, self.end, 5)}

    def takes_bulk(self, topic: str) -> bool:
        return False

    def cold_spans(self, topic: str, part: Slice, *, bulk: bool) -> tuple[()]:
        return ()


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def reader_of(log: Log, alarm: Alarm) -> TopicStreamReader:
    reader = TopicStreamReader(SourceSpec("n", "t", (), Position()))
    vars(reader).update(_log=log, _alarm=alarm)
    return reader


def moved(reader: TopicStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[TopicPartition]]:
    end = reader.latestOffset(start, ReadAllAvailable())
    return end, [part for part in reader.partitions(start, end) if isinstance(part, TopicPartition)]


def test_a_silent_source_wakes_its_job_at_most_once_a_second() -> None:
    clock = Seconds()
    reader = reader_of(Log(), Alarm(1, again=True, clock=clock))
    start = Position({"q/0": 0}).to_json()
    assert moved(reader, start) == (start, [])
    clock.now = 1.0
    woken, parts = moved(reader, start)
    assert [(part.slices, part.tick_ms) for part in parts] == [((), WAKE_TIME_MS)]
    assert Position.from_json(woken).rows_since(Position.from_json(start)) == 0
    clock.now = 1.9
    assert moved(reader, woken) == (woken, [])
    clock.now = 2.0
    assert moved(reader, woken)[0]["wakes"] == 2


def test_rows_put_the_tick_off_and_bring_none() -> None:
    clock, log = Seconds(), Log()
    reader = reader_of(log, Alarm(3_000, again=False, clock=clock))
    clock.now, log.end = 2.0, 10
    read, parts = moved(reader, Position({"q/0": 0}, wakes=4).to_json())
    assert [part.tick_ms for part in parts] == [None]
    assert read["wakes"] == 4
    clock.now = 4.5
    assert moved(reader, read) == (read, [])
    clock.now = 5.0
    woken, _ = moved(reader, read)
    assert woken["wakes"] == 5


def test_a_source_that_stays_silent_wakes_its_job_twice_and_no_more() -> None:
    clock = Seconds()
    reader = reader_of(Log(), Alarm(3_000, again=False, clock=clock))
    start = Position({"q/0": 0}).to_json()
    clock.now = 3.0
    first, _ = moved(reader, start)
    clock.now = 5.9
    assert moved(reader, first) == (first, [])
    clock.now = 6.0
    second, _ = moved(reader, first)
    assert [first["wakes"], second["wakes"]] == [1, 2]
    clock.now = 500.0
    assert moved(reader, second) == (second, [])


def test_a_source_that_need_not_wake_never_does() -> None:
    clock = Seconds()
    reader = reader_of(Log(), Alarm(0, again=True, clock=clock))
    clock.now = 1e9
    start = Position({"q/0": 0}).to_json()
    assert moved(reader, start) == (start, [])


S = 1_000_000


def test_a_slow_queue_holds_the_watermark_until_it_is_idle() -> None:
    clocks = Clocks([0], {0: 10 * S}, OperatorState())
    assert clocks.advance({0: Seen(None, {"fast": 100 * S, "slow": 20 * S})}, now_us=0) == 20 * S
    assert clocks.advance({0: Seen(None, {"fast": 200 * S})}, now_us=9 * S) == 20 * S
    assert clocks.advance({0: Seen(None, {"fast": 300 * S})}, now_us=11 * S) == 300 * S
    assert clocks.advance({0: Seen(None, {"slow": 30 * S})}, now_us=12 * S) == 300 * S
    assert clocks.advance({0: Seen(None, {"slow": 400 * S})}, now_us=13 * S) == 300 * S


def test_a_slow_queue_holds_the_watermark_for_ever_without_an_idle_timeout() -> None:
    clocks = Clocks([0], {}, OperatorState())
    clocks.advance({0: Seen(None, {"fast": 100 * S, "slow": 20 * S})}, now_us=0)
    assert clocks.advance({0: Seen(None, {"fast": 900 * S})}, now_us=10**9 * S) == 20 * S


def test_an_idle_input_of_a_join_holds_up_the_other_one_no_longer() -> None:
    clocks = Clocks([0, 1], {0: 10 * S, 1: 10 * S}, OperatorState())
    clocks.advance({0: Seen(None, {"a": 50 * S}), 1: Seen(None, {"b": 20 * S})}, now_us=0)
    assert clocks.advance({0: Seen(None, {"a": 90 * S})}, now_us=11 * S) == 90 * S


def test_each_input_of_a_join_is_idle_after_its_own_time() -> None:
    clocks = Clocks([0, 1, 2], {0: 10 * S, 1: 60 * S}, OperatorState())
    clocks.advance({0: Seen(None, {"a": 20 * S}), 1: Seen(None, {"b": 30 * S}), 2: Seen(None, {"c": 90 * S})}, now_us=0)
    assert clocks.advance({2: Seen(None, {"c": 95 * S})}, now_us=10 * S) == 20 * S
    assert clocks.advance({2: Seen(None, {"c": 96 * S})}, now_us=11 * S) == 30 * S
    assert clocks.advance({2: Seen(None, {"c": 97 * S})}, now_us=61 * S) == 97 * S
    clocks.advance({0: Seen(None, {"a": 200 * S}), 1: Seen(None, {"b": 200 * S})}, now_us=62 * S)
    assert clocks.advance({0: Seen(None, {"a": 300 * S}), 1: Seen(None, {"b": 300 * S})}, now_us=10**6 * S) == 97 * S


def test_an_input_of_which_nothing_was_ever_heard_is_idle_in_time_too() -> None:
    clocks = Clocks([0, 1], {1: 10 * S}, OperatorState())
    clocks.advance({0: Seen(None, {"a": 50 * S})}, now_us=5 * S)
    assert clocks.advance({0: Seen(None, {"a": 60 * S}), 1: Seen(WAKE_TIME_MS * 1000)}, now_us=15 * S) < 0
    assert clocks.advance({0: Seen(None, {"a": 70 * S})}, now_us=16 * S) == 70 * S
    waits = Clocks([0, 1], {}, OperatorState())
    waits.advance({0: Seen(None, {"a": 50 * S})}, now_us=0)
    assert waits.advance({0: Seen(None, {"a": 60 * S})}, now_us=10**6 * S) == START_OF_TIME_US


def test_since_when_an_input_is_waited_for_is_kept_over_a_restart() -> None:
    before = OperatorState()
    Clocks([0, 1], {1: 10 * S}, before).advance({0: Seen(None, {"a": 50 * S})}, now_us=0)
    after = OperatorState()
    clocks = Clocks([0, 1], {1: 10 * S}, after)
    after.apply(before.snapshot())
    assert clocks.advance({0: Seen(None, {"a": 70 * S})}, now_us=11 * S) == 70 * S


def test_a_tick_that_only_wakes_moves_no_event_time() -> None:
    clocks = Clocks([0], {}, OperatorState())
    assert clocks.advance({0: Seen(WAKE_TIME_MS * 1000)}, now_us=0) <= WAKE_TIME_MS * 1000
    assert clocks.advance({0: Seen(None, {"a": -5 * S})}, now_us=1) == -5 * S
    assert clocks.watermark_us > START_OF_TIME_US


def ticked(tick_us: int) -> dict[int, Seen]:
    return {0: Seen(tick_us)}


def test_event_time_goes_on_behind_its_end_from_where_rows_had_brought_it() -> None:
    clocks = Clocks([0], {}, OperatorState())
    clocks.advance({0: Seen(None, {"a": 50 * S, "b": 70 * S})}, now_us=0)
    assert clocks.advance(ticked(END_OF_TIME_MS * 1000), now_us=0) == END_OF_TIME_MS * 1000
    later = {0: Seen(WAKE_TIME_MS * 1000, {"a": 60 * S, "b": 90 * S})}
    assert clocks.resume(later, now_us=0) == 50 * S
    assert clocks.advance(later, now_us=0) == 60 * S
    assert clocks.advance(ticked(END_OF_TIME_MS * 1000), now_us=0) == END_OF_TIME_MS * 1000


def test_of_inputs_that_ended_one_after_the_other_the_slowest_says_where_event_time_goes_on() -> None:
    clocks, end = Clocks([0, 1], {}, OperatorState()), Seen(END_OF_TIME_MS * 1000)
    clocks.advance({0: Seen(None, {"a": 10 * S}), 1: Seen(None, {"b": 20 * S})}, now_us=0)
    assert clocks.advance({0: end}, now_us=0) == 20 * S
    assert clocks.advance({1: Seen(None, {"b": 90 * S})}, now_us=0) == 90 * S
    assert clocks.advance({1: end}, now_us=0) == END_OF_TIME_MS * 1000
    both = {number: Seen(WAKE_TIME_MS * 1000) for number in (0, 1)}
    assert clocks.resume(both, now_us=0) == 10 * S
    assert clocks.advance({**both, 0: Seen(WAKE_TIME_MS * 1000, {"a": 30 * S})}, now_us=0) == 30 * S


def test_an_input_without_new_rows_holds_up_nothing_in_the_next_bounded_run() -> None:
    clocks, end = Clocks([0, 1], {}, OperatorState()), Seen(END_OF_TIME_MS * 1000)
    clocks.advance({0: Seen(None, {"a": 10 * S}), 1: Seen(None, {"b": 20 * S})}, now_us=0)
    clocks.advance({0: end, 1: end}, now_us=0)
    assert clocks.advance({0: Seen(WAKE_TIME_MS * 1000, {"a": 60 * S})}, now_us=0) == 60 * S


def test_a_job_without_event_time_has_a_tick_that_lets_what_is_behind_it_go_on() -> None:
    clocks = Clocks([0], {}, OperatorState())
    clocks.advance(ticked(END_OF_TIME_MS * 1000), now_us=0)
    assert clocks.advance(ticked(WAKE_TIME_MS * 1000), now_us=0) == WAKE_TIME_MS * 1000 > START_OF_TIME_US


def test_ends_that_an_older_release_kept_among_the_ticks_are_ends() -> None:
    state = OperatorState()
    clocks = Clocks([0], {}, state)
    clocks.advance({0: Seen(None, {"a": 50 * S})}, now_us=0)
    state.table("clocks").put((0, ""), (END_OF_TIME_MS * 1000, 0))
    state.table("watermark").put("", END_OF_TIME_MS * 1000)
    assert clocks.advance({}, now_us=0) == END_OF_TIME_MS * 1000
    assert clocks.resume(ticked(WAKE_TIME_MS * 1000), now_us=0) == 50 * S


def test_a_bounded_run_goes_on_behind_the_end_of_the_last_one_where_rows_have_come() -> None:
    log = Log(end=10)
    reader = reader_of(log, Alarm(0, again=False))
    vars(reader).update(_spec=SourceSpec("n", "t", (), Position(), final_tick=True))
    reader.prepareForTriggerAvailableNow()
    read, _ = moved(reader, Position({"q/0": 0}).to_json())
    ended, parts = moved(reader, read)
    assert [part.tick_ms for part in parts] == [END_OF_TIME_MS]
    reader.prepareForTriggerAvailableNow()
    assert moved(reader, ended) == (ended, [])
    log.end = 15
    reader.prepareForTriggerAvailableNow()
    going, parts = moved(reader, ended)
    assert [(part.slices, part.tick_ms) for part in parts] == [((Slice("q/0", 10, 15),), None), ((), WAKE_TIME_MS)]
    assert moved(reader, going)[0] == {**going, "ended": True}


def test_a_job_without_an_end_goes_on_at_once_behind_a_bounded_run() -> None:
    reader = reader_of(Log(end=10), Alarm(0, again=False))
    ended = Position({"q/0": 10}, ended=True).to_json()
    going, parts = moved(reader, ended)
    assert [part.tick_ms for part in parts] == [WAKE_TIME_MS]
    assert moved(reader, going) == (going, [])


def test_an_operator_whose_inputs_are_idle_holds_up_nothing_behind_it() -> None:
    clocks = Clocks([0, 7], {}, OperatorState())
    clocks.advance({0: Seen(None, {"a": 50 * S}), 7: Seen(20 * S)}, now_us=0)
    assert clocks.advance({0: Seen(None, {"a": 60 * S})}, now_us=10**6 * S) == 20 * S
    assert clocks.advance({0: Seen(None, {"a": 70 * S}), 7: Seen(20 * S, is_idle=True)}, now_us=11 * S) == 70 * S
    assert clocks.advance({0: Seen(None, {"a": 80 * S})}, now_us=12 * S) == 80 * S
    clocks.advance({7: Seen(85 * S)}, now_us=13 * S)
    assert clocks.advance({0: Seen(None, {"a": 99 * S})}, now_us=14 * S) == 85 * S


def test_inputs_are_idle_together_only() -> None:
    clocks = Clocks([0, 1], {0: 10 * S, 1: 10 * S}, OperatorState())
    clocks.advance({0: Seen(None, {"a": 50 * S}), 1: Seen(None, {"b": 20 * S})}, now_us=0)
    assert not clocks.are_idle
    clocks.advance({0: Seen(None, {"a": 60 * S})}, now_us=11 * S)
    assert not clocks.are_idle
    clocks.advance({}, now_us=22 * S)
    assert clocks.are_idle
    clocks.advance({1: Seen(None, {"b": 90 * S})}, now_us=23 * S)
    assert not clocks.are_idle
