"""Jobs that stop and go on with another number of tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import Collected, Topic, bounded_run, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.streams.errors import JobError
from millstream.streams.jobs.runner import JobRunner

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

SCRIPT = """
CREATE TABLE t (n BIGINT, k STRING, v INT, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE windows (k STRING, at STRING, total INT) WITH ('connector' = 'print');
CREATE TABLE counts (k STRING, n BIGINT, biggest INT) WITH ('connector' = 'print');
CREATE TABLE overs (n BIGINT, total INT) WITH ('connector' = 'print');
CREATE TABLE matches (k STRING, low BIGINT, high BIGINT) WITH ('connector' = 'print');
CREATE TABLE pairs (one BIGINT, other BIGINT) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO windows SELECT k, DATE_FORMAT(window_start, 'mm:ss'), SUM(v)
  FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '25' SECOND) GROUP BY k, window_start, window_end;
INSERT INTO counts SELECT k, COUNT(*), MAX(v) FROM t GROUP BY k;
INSERT INTO overs SELECT n, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM t;
INSERT INTO matches SELECT k, low, high FROM t MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts MEASURES FIRST(A.n) AS low, B.n AS high ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A+ B) DEFINE A AS v < 6, B AS v > 8);
INSERT INTO pairs SELECT a.n, b.n FROM t AS a JOIN t AS b ON a.v = b.v AND a.n < b.n AND a.k <> b.k;
END;
"""
SINKS = ("windows", "counts", "overs", "matches", "pairs")
PARTS = 4


def events(part: int) -> list[Message]:
    rows = [(number, f"k{number * 7 % 13}", number * 11 % 12) for number in range(part * 40, (part + 1) * 40)]
    return [
        Message(
            "t",
            json.dumps({"n": n, "k": k, "v": v, "at": f"2026-01-01 10:{n // 60:02}:{n % 60:02}"}).encode(),
        )
        for n, k, v in rows
    ]


def settings(tasks: int, *, is_last: bool) -> str:
    return f"SET 'parallelism.default' = '{tasks}'; SET 'millstream.bounded.close-windows' = '{str(is_last).lower()}';"


def tables(runs: Sequence[Collected]) -> dict[str, Counter[tuple[object, ...]]]:
    found = {}
    for sink in SINKS:
        rows = [row for run in runs for row in run.rows.get(sink, [])]
        kinds = [kind for run in runs for kind in run.kinds.get(sink, [])]
        found[sink] = Collected({sink: rows}, kinds={sink: kinds}).table(sink)
    return found


def test_a_job_that_goes_on_with_more_and_fewer_tasks_gives_what_one_run_gives(
    spark: SparkSession, topic: Filled
) -> None:
    runs = []
    with topic([]) as running, BlockingClient(running.nameserver) as client:
        for part, tasks in zip(range(PARTS), (2, 5, 1, 3), strict=True):
            client.send_many(events(part))
            script = settings(tasks, is_last=part == PARTS - 1) + SCRIPT
            runs.append(bounded_run(spark, running, script, name="moving"))
        whole = bounded_run(spark, running, settings(2, is_last=True) + SCRIPT, name="whole")
    expected = tables([whole])
    assert tables(runs) == expected
    assert all(sum(table.values()) >= 10 for table in expected.values())


def test_the_key_groups_of_a_job_stay(spark: SparkSession, topic: Filled) -> None:
    script = SCRIPT.partition("EXECUTE")[0] + "SELECT k, COUNT(*) FROM t GROUP BY k;"
    with topic([]) as running, BlockingClient(running.nameserver) as client:
        client.send_many(events(0))
        bounded_run(spark, running, "SET 'pipeline.max-parallelism' = '3';" + script, name="three")
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        other = compiled("SET 'pipeline.max-parallelism' = '4';" + script, running.nameserver)
        with pytest.raises(JobError, match="has 3 key groups, not 4") as refusal:
            runner.start(other, name="three", bounded=True)
        assert refusal.value.name == "CHECKPOINT_MISMATCH"
        client.send_many(events(1))
        again = bounded_run(spark, running, script, name="three")
    assert again.progress.rows_in == 40
