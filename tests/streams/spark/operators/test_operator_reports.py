"""What operators leave for the driver reaches it: late rows with their types, event times by table and queue."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.operators.operator import START_OF_TIME_US, Row
from millstream.streams.operators.state import OpenEnds, OperatorState
from millstream.streams.spark.operators.clocks import Clocks, Seen
from millstream.streams.spark.operators.operator_reports import (
    EventTimes,
    LateRows,
    OperatorEnds,
    QueueTimes,
    ends_by_operator,
    event_times_of,
    late_spool,
    open_ends_spool,
    times_spool,
)


def times_after(directory: Path, *left: tuple[str, QueueTimes]) -> EventTimes:
    """What the driver knows after these were left, in that order."""
    spool = times_spool(directory)
    for operator, times in left:
        spool.put(operator, [times])
    return event_times_of(spool.take(), {0: "t", 1: "u"})


def test_clocks_tell_the_newest_time_of_each_queue() -> None:
    clocks = Clocks((0, 1), {}, OperatorState())
    clocks.advance({0: Seen(queues={"a": 5, "b": 9}), 1: Seen(tick_us=3)}, 1)
    clocks.advance({0: Seen(queues={"a": 4})}, 2)
    assert clocks.queues() == {0: {"a": 5, "b": 9}}


def test_the_least_watermark_counts_and_queues_have_the_names_of_their_tables(tmp_path: Path) -> None:
    times = times_after(
        tmp_path / "late",
        ("1-join", QueueTimes(7, {0: {"a": 8}, 1: {"a": 7}})),
        ("1-join", QueueTimes(8, {0: {"a": 9}, 1: {"a": 8}})),
        ("2-rank", QueueTimes(5, {4: {"-": 5}})),
    )
    assert times == (5, {("t", "a"): 9, ("u", "a"): 8}, {})


def test_rows_without_event_time_are_those_of_the_operator_that_got_most(tmp_path: Path) -> None:
    times = times_after(
        tmp_path, ("1-join", QueueTimes(7, {}, {0: 3, 1: 2})), ("2-rank", QueueTimes(7, {}, {0: 4, 5: 1}))
    )
    assert times.untimed == {"t": 4, "u": 2}


def test_before_the_first_event_time_there_is_no_watermark(tmp_path: Path) -> None:
    assert times_after(tmp_path) == EventTimes()
    assert times_after(tmp_path, ("1-join", QueueTimes(START_OF_TIME_US))) == EventTimes()


def test_what_an_operator_has_open_is_the_sum_of_its_buckets(tmp_path: Path) -> None:
    spool = open_ends_spool(tmp_path)
    for bucket, ends in enumerate((OpenEnds(2, 9), OpenEnds(1, 5), OpenEnds())):
        spool.put(f"0-rank-{bucket}", [OperatorEnds("0-rank", ends)])
    spool.put("1-top-0", [OperatorEnds("1-top", OpenEnds(1, 7))])
    assert ends_by_operator(spool.take()) == {"0-rank": OpenEnds(3, 5), "1-top": OpenEnds(1, 7)}


def test_late_rows_keep_the_types_of_their_values(tmp_path: Path) -> None:
    rows: list[tuple[int, Row]] = [
        (0, (1, "a", 2.5, True, None, b"\0", Decimal("1.50"))),
        (1, ([1, None], [("key", Decimal("2")), ("other", None)], {"a": 1, "b": [("k", 1)]})),
        (0, (float("inf"), -(2**63), 2**63 - 1, Decimal("-1E+5"), Decimal("9" * 38))),
    ]
    spool = late_spool(tmp_path)
    spool.put("0-rank-3-0", [LateRows.of("0-rank", rows)])
    (late,) = spool.take()
    assert late.operator == "0-rank"
    assert late.rows() == rows
    assert [[type(value) for value in row] for _, row in late.rows()] == [
        [type(value) for value in row] for _, row in rows
    ]
