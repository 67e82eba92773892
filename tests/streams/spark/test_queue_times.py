"""What operators know of event time reaches the driver, by table and queue."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.operators.state import State
from millstream.streams.operators.turn import START_OF_TIME_US
from millstream.streams.spark.operators.clocks import Clocks, Seen
from millstream.streams.spark.operators.queue_times import QueueTimes, TakenTimes, TimesSpool


def test_clocks_tell_the_newest_time_of_each_queue() -> None:
    clocks = Clocks((0, 1), {}, State())
    clocks.advance({0: Seen(queues={"a": 5, "b": 9}), 1: Seen(tick_us=3)}, 1)
    clocks.advance({0: Seen(queues={"a": 4})}, 2)
    assert clocks.queues() == {0: {"a": 5, "b": 9}}


def test_the_least_watermark_counts_and_queues_have_the_names_of_their_tables(tmp_path: Path) -> None:
    spool = TimesSpool(str(tmp_path / "late"))
    spool.keep("1-join", QueueTimes(7, {0: {"a": 8}, 1: {"a": 7}}))
    spool.keep("1-join", QueueTimes(8, {0: {"a": 9}, 1: {"a": 8}}))
    spool.keep("2-rank", QueueTimes(5, {4: {"-": 5}}))
    assert spool.take({0: "t", 1: "u"}) == (5, {("t", "a"): 9, ("u", "a"): 8}, {})


def test_rows_without_event_time_are_those_of_the_operator_that_got_most(tmp_path: Path) -> None:
    spool = TimesSpool(str(tmp_path))
    spool.keep("1-join", QueueTimes(7, {}, {0: 3, 1: 2}))
    spool.keep("2-rank", QueueTimes(7, {}, {0: 4, 5: 1}))
    assert spool.take({0: "t", 1: "u"}).untimed == {"t": 4, "u": 2}


def test_before_the_first_event_time_there_is_no_watermark(tmp_path: Path) -> None:
    spool = TimesSpool(str(tmp_path))
    assert spool.take({}) == TakenTimes()
    spool.keep("1-join", QueueTimes(START_OF_TIME_US))
    assert spool.take({}) == TakenTimes()
