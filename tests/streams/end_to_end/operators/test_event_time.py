"""Windows and watermarks: what moves event time, what is late, and windows over windows."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, Topic, bounded_run, compiled

from millstream.streams.errors import JobError
from millstream.streams.jobs.runner import JobRunner

pytestmark = pytest.mark.spark

NOON = datetime.datetime(2026, 3, 1, 12, 0)
Filled = Callable[..., AbstractContextManager[Topic]]
ONE_BY_ONE = "SET 'millstream.max-rows-per-trigger' = '1';"
TABLE = """
CREATE TABLE readings (device STRING, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
"""
COUNTS = """
SELECT window_start, device, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND)) {where}
GROUP BY window_start, window_end, device
"""


def reading(device: str, second: int) -> tuple[int, bytes]:
    """A message in queue 0 whose event time is so many seconds after noon."""
    moment = NOON + datetime.timedelta(seconds=second)
    return 0, json.dumps({"device": device, "at": f"{moment:%Y-%m-%d %H:%M:%S}"}).encode()


def at(second: int) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=second)


def test_rows_that_where_drops_still_move_event_time(spark: SparkSession, topic: Filled) -> None:
    """Without a final tick: the window can close only because of the other device's later row."""
    collected = Collected()
    with topic([reading("a", 1), reading("a", 2), reading("other", 60)]) as running:
        plan = compiled(ONE_BY_ONE + TABLE + COUNTS.format(where="WHERE device = 'a'"), running.nameserver)
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        job = runner.start(plan, name="unbounded", on_rows=collected.take)
        deadline_s = time.monotonic() + LIMIT_S
        while not collected.rows and time.monotonic() < deadline_s:
            assert not job.wait(0.05)
        job.stop()
    assert collected.rows["result"] == [(at(0), "a", 2)]
    assert job.progress().state == "ended"


def test_a_row_behind_the_watermark_is_left_out_and_counted_as_late(spark: SparkSession, topic: Filled) -> None:
    rows = [reading("a", 1), reading("a", 100), reading("a", 200), reading("a", 2)]
    with topic(rows) as running:
        result = bounded_run(spark, running, ONE_BY_ONE + TABLE + COUNTS.format(where=""), name="late")
    assert result.sorted("result") == [(at(0), "a", 1), (at(100), "a", 1), (at(200), "a", 1)]
    assert (result.progress.rows_in, result.progress.late) == (4, 1)
    assert result.progress.watermark_ms == int(at(195).replace(tzinfo=datetime.UTC).timestamp() * 1000)


def test_a_row_without_event_time_is_in_no_window_and_harms_none(spark: SparkSession, topic: Filled) -> None:
    rows = [reading("a", 1), (0, b'{"device": "a", "at": "nonsense"}'), (0, b'{"device": "a"}'), reading("a", 3)]
    with topic(rows) as running:
        result = bounded_run(spark, running, TABLE + COUNTS.format(where=""), name="timeless")
    assert result.sorted("result") == [(at(0), "a", 2)]
    assert result.progress.malformed == 0
    assert result.progress.without_event_time == {"readings": 2}


@pytest.mark.parametrize(
    ("query", "count"),
    [
        (COUNTS.format(where="WHERE device = 'a'"), 2),
        (COUNTS.format(where="").replace("TUMBLE(", "HOP(").replace("'10' S", "'5' SECOND, INTERVAL '10' S"), 3),
        ("SELECT device, LAG(at) OVER (PARTITION BY device ORDER BY ts) AS before FROM readings", 3),
        ("SELECT a.device FROM readings a JOIN readings b ON a.device = b.device AND a.ts = b.ts", 3),
    ],
)
def test_rows_without_event_time_are_counted_once_by_table(
    query: str, count: int, spark: SparkSession, topic: Filled
) -> None:
    timeless = [(0, b'{"device": "a", "at": "nonsense"}'), (0, b'{"device": "a"}'), (0, b'{"device": "b"}')]
    with topic([reading("a", 1), *timeless, reading("a", 3)]) as running:
        result = bounded_run(spark, running, ONE_BY_ONE + TABLE + query, name="counted-timeless")
    assert result.progress.without_event_time == {"readings": count}


def test_windows_of_a_batch_count_rows_without_event_time_too(spark: SparkSession, topic: Filled) -> None:
    timeless = [(0, b'{"device": "a", "at": "nonsense"}'), (0, b'{"device": "a"}'), (0, b'{"device": "b"}')]
    batch = "SET 'execution.runtime-mode' = 'batch';"
    with topic([reading("a", 1), *timeless, reading("a", 3)]) as running:
        result = bounded_run(spark, running, batch + TABLE + COUNTS.format(where=""), name="batch")
        where = bounded_run(spark, running, batch + TABLE + COUNTS.format(where="WHERE device = 'a'"), name="some")
        nothing = f"SELECT * FROM ({COUNTS.format(where='').strip().rstrip(';')}) WHERE FALSE"
        none = bounded_run(spark, running, batch + TABLE + nothing, name="none")
    assert (none.rows, none.progress.state) == ({}, "ended")
    assert result.sorted("result") == [(at(0), "a", 2)]
    assert result.progress.without_event_time == {"readings": 3}
    assert where.progress.without_event_time == {"readings": 2}


@pytest.mark.parametrize("query", [COUNTS.format(where=""), "SELECT device, ts FROM readings"])
def test_a_row_without_event_time_ends_the_job_that_asks_for_it(query: str, spark: SparkSession, topic: Filled) -> None:
    script = "SET 'millstream.null-event-time' = 'fail';" + TABLE + query
    with topic([reading("a", 1), reading("a", 3)]) as running:
        result = bounded_run(spark, running, script, name="all-timed")
        assert result.progress.without_event_time == {}
    with (
        topic([reading("a", 1), (0, b'{"device": "a"}')]) as running,
        pytest.raises(JobError, match=r"^The job failed: A row of readings has no event time: ts is NULL, .*'count'"),
    ):
        bounded_run(spark, running, script, name="timeless-fails")


@pytest.mark.parametrize(
    ("where", "seconds"),
    [
        ("", [(1, None), (100, -4), (200, 95), (2, 195)]),
        ("WHERE CURRENT_WATERMARK(ts) IS NULL OR ts > CURRENT_WATERMARK(ts)", [(1, None), (100, -4), (200, 95)]),
    ],
)
def test_each_row_knows_the_watermark_that_the_rows_before_it_moved(
    where: str, seconds: list[tuple[int, int | None]], spark: SparkSession, topic: Filled
) -> None:
    with topic([reading("a", second) for second in (1, 100, 200, 2)]) as running:
        script = f"{ONE_BY_ONE}{TABLE}SELECT ts, CURRENT_WATERMARK(ts) AS w FROM readings {where}"
        result = bounded_run(spark, running, script, name="current-watermark")
    assert result.rows["result"] == [(at(time), None if mark is None else at(mark)) for time, mark in seconds]


def test_a_window_stands_on_the_time_of_another_window(spark: SparkSession, topic: Filled) -> None:
    query = """
    SELECT TUMBLE_START(w, INTERVAL '20' SECOND), SUM(n), COUNT(*) FROM (
      SELECT TUMBLE_ROWTIME(ts, INTERVAL '10' SECOND) AS w, COUNT(*) AS n FROM readings
      GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)
    ) GROUP BY TUMBLE(w, INTERVAL '20' SECOND)
    """
    rows = [reading("a", second) for second in (1, 2, 11, 25, 26, 27)]
    with topic(rows) as running:
        result = bounded_run(spark, running, TABLE + query, name="nested")
    assert result.sorted("result") == [(at(0), 3, 2), (at(20), 3, 1)]
