"""Savepoints of jobs whose state lies elsewhere, and of jobs that share a query, with Spark."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Collected, Topic, bounded_run, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.jobs.savepoints.savepoint import write_savepoint
from millstream.streams.plan.nodes import JobPlan
from object_stores import Bucket, bucket  # noqa: F401 - a fixture
from patience import eventually_blocking

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

TABLES = """
CREATE TABLE t (n BIGINT, k STRING) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE counts (k STRING, n BIGINT, total BIGINT) WITH ('connector' = 'print');
CREATE TABLE plain (n BIGINT) WITH ('connector' = 'print');
"""
COUNTS = TABLES + "INSERT INTO counts SELECT k, COUNT(*), SUM(n) FROM t GROUP BY k;"
PLAIN = TABLES + "INSERT INTO plain SELECT n FROM t WHERE n >= {least};"
ROWS = 30


def events(part: int) -> list[Message]:
    return [
        Message("t", json.dumps({"n": n, "k": f"k{n * 7 % 5}"}).encode()) for n in range(part * ROWS, (part + 1) * ROWS)
    ]


def added_up(runs: list[Collected]) -> Counter[tuple[object, ...]]:
    rows = [row for run in runs for row in run.rows["counts"]]
    kinds = [kind for run in runs for kind in run.kinds["counts"]]
    return Collected({"counts": rows}, kinds={"counts": kinds}).table("counts")


def check_moving(spark: SparkSession, running: Topic, saved_in: str, begun_in: str) -> None:
    """A job with its state there, one that begins elsewhere from its savepoint and loses its disk, and a whole one."""
    saved, checkpoints = running.directory / "saved", running.directory / "checkpoints"
    tasks = "SET 'parallelism.default' = '{}';"
    begin = f"SET 'execution.state-recovery.path' = '{saved}';{begun_in}"
    with BlockingClient(running.nameserver) as client:
        client.send_many(events(0))
        runs = [bounded_run(spark, running, saved_in + tasks.format(2) + COUNTS, name="first")]
        assert (checkpoints / "first" / "t" / "operators").exists() is (saved_in == "")
        write_savepoint(checkpoints / "first", saved)
        shutil.rmtree(checkpoints / "first")
        client.send_many(events(1))
        runs.append(bounded_run(spark, running, begin + tasks.format(3) + COUNTS, name="second"))
        if begun_in:
            assert (checkpoints / "second" / "t" / "operators").exists() is ("mirror" in begun_in)
            shutil.rmtree(checkpoints / "second")
        client.send_many(events(2))
        runs.append(bounded_run(spark, running, begin + tasks.format(1) + COUNTS, name="second"))
        whole = bounded_run(spark, running, COUNTS, name="whole")
    assert [run.progress.rows_in for run in runs] == [ROWS] * 3
    assert added_up(runs) == whole.table("counts")


@pytest.mark.parametrize(("is_saved_there", "begins_there"), [(True, True), (True, False), (False, True)])
def test_a_savepoint_moves_state_into_a_directory_elsewhere_and_out_of_one(
    spark: SparkSession, topic: Filled, tmp_path: Path, is_saved_there: bool, begins_there: bool
) -> None:
    place = f"SET 'execution.checkpointing.dir' = '{tmp_path / 'states'}';"
    with topic([]) as running:
        check_moving(spark, running, place if is_saved_there else "", place if begins_there else "")


def test_a_job_that_began_from_a_savepoint_goes_on_from_its_copy_in_a_topic(spark: SparkSession, topic: Filled) -> None:
    with topic([]) as running:
        check_moving(spark, running, "", "SET 'state.mirror' = 'topic';")


def test_a_savepoint_moves_state_from_one_prefix_of_an_object_store_to_another(
    spark: SparkSession,
    topic: Filled,
    bucket: Bucket,  # noqa: F811
) -> None:
    one, other = (f"SET 'state.checkpoints.dir' = '{bucket.address(name)}';" for name in ("one", "other"))
    with topic([]) as running:
        check_moving(spark, running, one, other)


def test_a_job_that_shares_a_query_is_saved_while_both_run_and_another_goes_on_from_there(
    spark: SparkSession, topic: Filled
) -> None:
    rows = Counter[object]()

    def take(found: ResultRows) -> None:
        rows.update(row[0] for row in found.rows)

    with topic([]) as running, BlockingClient(running.nameserver) as client:
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        plans = [compiled(PLAIN.format(least=least), running.nameserver) for least in (0, 1_000)]
        assert all(isinstance(plan, JobPlan) for plan in plans)
        handles = runner.start_merged(plans, names=["one", "two"], on_rows=take)
        assert handles[0].query == handles[1].query
        client.send_many(events(0))
        eventually_blocking(lambda: set(rows) == set(range(ROWS)))
        eventually_blocking(lambda: handles[0].progress().behind == 0)
        found = handles[0].write_savepoint(running.directory / "saved")
        client.send_many(events(1))
        eventually_blocking(lambda: set(rows) == set(range(2 * ROWS)))
        for handle in handles:
            handle.stop()
        begin = f"SET 'execution.state-recovery.path' = '{running.directory / 'saved'}';"
        third = bounded_run(spark, running, begin + PLAIN.format(least=0), name="third")
    assert sum(found.queries[0].positions["t"]["queues"].values()) == ROWS
    assert sorted(row[0] for row in third.rows["plain"]) == list(range(ROWS, 2 * ROWS))
    assert set(rows.values()) == {1}
