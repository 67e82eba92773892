"""Each row with the watermark before its micro-batch."""

from __future__ import annotations

from millstream.streams.operators.operator import DELETE, INSERT, START_OF_TIME_US, BatchTimes, Changes, OperatorOutput
from millstream.streams.operators.watermark_buffer import WatermarkTeller


def told(turn: BatchTimes, *rows: str) -> list[tuple[object, ...]]:
    out = OperatorOutput()
    WatermarkTeller().process(0, Changes([(row,) for row in rows]), turn, out)
    return out.rows


def test_there_is_no_watermark_before_the_first_micro_batch_is_over() -> None:
    assert told(BatchTimes(START_OF_TIME_US, 5_000_000), "a", "b") == [("a", None), ("b", None)]


def test_all_rows_of_a_micro_batch_meet_the_watermark_before_it_in_whole_milliseconds() -> None:
    assert told(BatchTimes(5_000_999, 9_000_000), "a", "b") == [("a", 5_000_000), ("b", 5_000_000)]
    assert told(BatchTimes(-1, 9_000_000), "a") == [("a", -1_000)]


def test_rows_that_change_keep_their_kinds() -> None:
    out = OperatorOutput()
    WatermarkTeller().process(0, Changes([("a",), ("b",)], [INSERT, DELETE]), BatchTimes(7_000, 8_000), out)
    assert (out.kinds, out.rows) == ([INSERT, DELETE], [("a", 7_000), ("b", 7_000)])
