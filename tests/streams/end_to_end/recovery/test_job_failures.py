"""A job that cannot start or go on says why in one line, and a bad value ends no job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Topic, bounded_run, compiled

from millstream.model.errors import NameRefused
from millstream.streams.errors import JobError
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.spark.runtime.source_forks import READER

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]
TABLE = """
CREATE TABLE t (id BIGINT, word STRING, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
"""
WINDOW = "SELECT COUNT(*) FROM t GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)"
ROWS = [
    (0, json.dumps({"id": 9_000_000_000_000_000_000, "word": "(", "at": "2026-03-01 12:00:01"}).encode()),
    (0, json.dumps({"id": -1, "word": "b", "at": "2026-03-01 12:00:02"}).encode()),
]

HARMLESS = [
    ("id + id", [(-446744073709551616,), (-2,)]),
    ("id / (id - id)", [(None,), (None,)]),
    ("TO_TIMESTAMP_LTZ(id, 0) IS NULL", [(True,), (False,)]),
    ("FROM_UNIXTIME(id)", [(None,), ("1969-12-31 23:59:59",)]),
    ("TIMESTAMPADD(YEAR, CAST(id AS INT), ts) IS NULL", [(True,), (False,)]),
    ("CAST('+12345-01-01' AS DATE)", [(None,), (None,)]),
    ("REGEXP(word, word)", [(False,), (True,)]),
    ("REGEXP_EXTRACT(word, '(')", [(None,), (None,)]),
    ("LPAD(word, 1000000000, 'x')", [(None,), (None,)]),
    ("REPEAT(word, 1000000000)", [(None,), (None,)]),
    ("CHAR_LENGTH(REPEAT(word, 1000))", [(1000,), (1000,)]),
    ("FROM_BASE64('###')", [(None,), (None,)]),
    ("JSON_VALUE(word, '$.a')", [(None,), (None,)]),
]


def runner_of(spark: SparkSession, running: Topic) -> JobRunner:
    return JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")


def test_values_that_other_engines_stop_at_become_null(spark: SparkSession, topic: Filled) -> None:
    columns = ", ".join(f"{expression} AS c{number}" for number, (expression, _) in enumerate(HARMLESS))
    with topic(ROWS) as running:
        result = bounded_run(spark, running, f"{TABLE} SELECT {columns} FROM t", name="harmless")
    got = {
        expression: [(row[number],) for row in result.rows["result"]] for number, (expression, _) in enumerate(HARMLESS)
    }
    assert got == dict(HARMLESS)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("DATE_FORMAT(ts, 'www-MM')", "DATE_FORMAT cannot use the format 'www-MM'"),
        ("TO_TIMESTAMP(at, 'bogus')", "TO_TIMESTAMP cannot use the format 'bogus'"),
        ("TO_TIMESTAMP(at, word)", "is not a constant"),
        ("ROUND(1.25, CAST(id AS INT))", "are not a constant"),
    ],
)
def test_what_spark_cannot_do_is_said_before_any_row_is_read(
    spark: SparkSession, topic: Filled, expression: str, words: str
) -> None:
    with topic(ROWS) as running, pytest.raises(JobError, match=words) as refusal:
        runner_of(spark, running).start(
            compiled(f"{TABLE} SELECT {expression} FROM t", running.nameserver), name="refused"
        )
    assert refusal.value.name == "JOB_FAILED"


def test_a_missing_topic_is_refused_at_the_start(spark: SparkSession, topic: Filled) -> None:
    with topic(ROWS) as running:
        plan = compiled(TABLE.replace("'t')", "'nowhere')") + "SELECT id FROM t", running.nameserver)
        with pytest.raises(NameRefused, match="nowhere"):
            runner_of(spark, running).start(plan, name="missing")


def test_a_checkpoint_serves_its_own_query_alone(spark: SparkSession, topic: Filled) -> None:
    with topic(ROWS) as running:
        bounded_run(spark, running, TABLE + WINDOW, name="windows")
        runner = runner_of(spark, running)
        other = compiled(TABLE + "SELECT id FROM t", running.nameserver)
        with pytest.raises(JobError, match="another query") as foreign:
            runner.start(other, name="windows", bounded=True)
        again = bounded_run(spark, running, TABLE + WINDOW, name="windows")
    assert foreign.value.name == "CHECKPOINT_MISMATCH"
    assert (again.rows, again.progress.rows_in) == ({}, 0)


def test_a_bounded_job_without_windows_goes_on_where_the_last_run_ended(spark: SparkSession, topic: Filled) -> None:
    with topic(ROWS) as running:
        first = bounded_run(spark, running, TABLE + "SELECT word FROM t", name="again")
        second = bounded_run(spark, running, TABLE + "SELECT word FROM t", name="again")
    assert first.rows == {"result": [("(",), ("b",)]}
    assert (second.rows, second.progress.rows_in, second.progress.state) == ({}, 0, "ended")


def test_a_job_whose_server_goes_away_fails_with_the_address_and_no_stack_trace(
    spark: SparkSession, topic: Filled
) -> None:
    with topic(ROWS) as running:
        never = "SET 'restart-strategy.type' = 'none';"
        plan = compiled(never + TABLE + "SELECT id FROM t", running.nameserver)
        job = runner_of(spark, running).start(plan, name="orphan")
        while job.progress().rows_in < len(ROWS):
            assert not job.wait(0.05)
    with pytest.raises(JobError, match=r"127\.0\.0\.1") as failure:
        job.wait(LIMIT_S)
    assert "Traceback" not in str(failure.value)
    assert "\n" not in str(failure.value)
    assert job.progress().state == "failed"


@pytest.mark.kill
def test_a_job_whose_reader_of_the_source_is_killed_goes_on(spark: SparkSession, topic: Filled) -> None:
    with topic(ROWS) as running:
        soon = "SET 'restart-strategy.exponential-delay.initial-backoff' = '100 ms';"
        plan = compiled(soon + TABLE + "SELECT id FROM t", running.nameserver)
        job = runner_of(spark, running).start(plan, name="reader-killed")
        while job.progress().rows_in < len(ROWS):
            assert not job.wait(0.05)
        killed = readers_below(os.getpid())
        assert killed
        for pid in killed:
            # Each of them passes it on to the process that it stands for, where there is one.
            os.kill(pid, signal.SIGTERM)
        while job.progress().restarts < 1:
            assert not job.wait(0.05)
        assert job.progress().state == "running"
        job.stop()


def readers_below(ancestor: int) -> list[int]:
    """The processes below `ancestor` in which Spark's driver reads positions of sources."""
    parents, readers = {}, []
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(one.name)] = int((one / "stat").read_text().rpartition(")")[2].split()[1])
            if READER.encode() in (one / "cmdline").read_bytes():
                readers.append(int(one.name))

    def is_below(pid: int) -> bool:
        return pid == ancestor or (pid in parents and is_below(parents[pid]))

    return [pid for pid in readers if is_below(pid)]


def test_what_the_taker_of_rows_raises_fails_a_batch_job(spark: SparkSession, tmp_path: Path) -> None:
    def refuse(result: ResultRows) -> None:
        raise ValueError(f"no place for {len(result.rows)} rows")

    runner = JobRunner(spark, nameserver="127.0.0.1:9", checkpoint_root=tmp_path)
    with pytest.raises(JobError, match="no place for 1 rows"):
        runner.start(compiled("SELECT 1 AS x", "127.0.0.1:9"), name="refused", on_rows=refuse).wait(LIMIT_S)
