"""The update matrix: which changes of a query keep which state, and that what is kept gives right results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, Topic, bounded_run, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.streams.errors import JobError
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.jobs.savepoints.savepoint import write_savepoint
from patience import eventually_blocking

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

OPEN = "SET 'millstream.bounded.close-windows' = 'false'; "
DROP = "SET 'execution.state-recovery.ignore-unclaimed-state' = 'true'; "
TABLES = """
CREATE TABLE t (n BIGINT, k STRING, v INT, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE plain (n BIGINT) WITH ('connector' = 'print');
CREATE TABLE other (n BIGINT) WITH ('connector' = 'print');
CREATE TABLE wide (n BIGINT, v INT) WITH ('connector' = 'print');
CREATE TABLE counts (k STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE sums (k STRING, n BIGINT, total INT) WITH ('connector' = 'print');
CREATE TABLE windows (k STRING, at STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE pairs (one BIGINT, other BIGINT) WITH ('connector' = 'print');
"""
SINKS = ("plain", "other")
COUNTS = "INSERT INTO counts SELECT k, COUNT(*) FROM t GROUP BY k;"
SUMS = "INSERT INTO sums SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k;"
PLAIN = "INSERT INTO plain SELECT n FROM t WHERE v > 3;"
PAIRS = "INSERT INTO pairs SELECT a.n, b.n FROM t AS a JOIN t AS b ON a.v = b.v AND a.n < b.n;"


def windows(seconds: int) -> str:
    return (
        "INSERT INTO windows SELECT k, DATE_FORMAT(window_start, 'mm:ss'), COUNT(*) FROM "
        f"TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{seconds}' SECOND) GROUP BY k, window_start, window_end;"
    )


def job(*inserts: str) -> str:
    return f"{TABLES}EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END;"


def events(part: int) -> list[Message]:
    rows = [(number, f"k{number % 3}", number * 7 % 12) for number in range(part * 30, (part + 1) * 30)]
    return [
        Message("t", json.dumps({"n": n, "k": k, "v": v, "at": f"2026-01-01 10:{n // 60:02}:{n % 60:02}"}).encode())
        for n, k, v in rows
    ]


class Change:
    """A job that reads the first part with one query and the second with another."""

    def __init__(self, spark: SparkSession, topic: Topic) -> None:
        self.spark, self.topic = spark, topic

    def run(self, script: str, name: str = "changed") -> Collected:
        return bounded_run(self.spark, self.topic, OPEN + script, name=name)

    def from_to(self, before: str, after: str, name: str = "changed") -> tuple[Collected, Collected]:
        with BlockingClient(self.topic.nameserver) as client:
            client.send_many(events(0))
            first = self.run(before, name)
            client.send_many(events(1))
            return first, self.run(after, name)


def both(first: Collected, second: Collected, sink: str) -> object:
    rows, kinds = ([*one.get(sink, []), *other.get(sink, [])] for one, other in (
        (first.rows, second.rows), (first.kinds, second.kinds)))  # fmt: skip
    return Collected({sink: rows}, kinds={sink: kinds}).table(sink)


def test_a_job_without_state_goes_on_with_another_condition_another_column_and_another_sink(
    spark: SparkSession, topic: Filled
) -> None:
    after = job(
        "INSERT INTO wide SELECT n, v FROM t WHERE v <= 3;",
        PLAIN.replace("v > 3", "v > 9"),
        COUNTS.replace("t GROUP", "t WHERE v > 5 GROUP"),
    )
    with topic([]) as running:
        _, second = Change(spark, running).from_to(job(PLAIN), after)
    rows = [(n, n * 7 % 12) for n in range(30, 60)]
    assert second.sorted("wide") == sorted(((n, v) for n, v in rows if v <= 3), key=repr)
    assert second.sorted("plain") == sorted(((n,) for n, v in rows if v > 9), key=repr)
    assert sum(n for _, n in second.table("counts")) == sum(1 for _, v in rows if v > 5)


def test_operators_keep_their_state_in_another_order_beside_other_conditions_and_new_ones(
    spark: SparkSession, topic: Filled
) -> None:
    before = job(COUNTS, windows(20), PAIRS)
    after = job(PAIRS, PLAIN, SUMS, windows(20), COUNTS)
    with topic([]) as running:
        change = Change(spark, running)
        first, second = change.from_to(before, after)
        whole = change.run(job(COUNTS, windows(20), PAIRS), "whole")
    for sink in ("counts", "windows", "pairs"):
        assert both(first, second, sink) == whole.table(sink)
        assert whole.table(sink)
    assert sum(n for _, n, _ in second.table("sums")) == 30


def refusal(change: Change, script: str) -> JobError:
    with pytest.raises(JobError) as refused:
        change.run(script)
    assert refused.value.name == "CHECKPOINT_MISMATCH"
    return refused.value


def test_what_does_not_fit_is_refused_before_anything_changes_and_what_is_gone_goes_with_consent(
    spark: SparkSession, topic: Filled
) -> None:
    with topic([]) as running:
        change = Change(spark, running)
        with BlockingClient(running.nameserver) as client:
            client.send_many(events(0))
            first = change.run(job(COUNTS, windows(20)))
            place = running.directory / "checkpoints" / "changed" / "t"
            before = {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
            assert "20000 ms" in str(refusal(change, job(COUNTS, windows(30))))
            keyed = COUNTS.replace("SELECT k", "SELECT UPPER(k)").replace("BY k", "BY UPPER(k)")
            assert "UPPER" in str(refusal(change, job(keyed, windows(20))))
            assert "ignore-unclaimed-state" in str(refusal(change, job(COUNTS)))
            assert before == {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
            client.send_many(events(1))
            second = change.run(DROP + job(COUNTS))
            whole = change.run(job(COUNTS), "whole")
            # What was dropped begins empty when it comes back.
            third = bounded_run(spark, running, job(COUNTS, windows(20)), name="changed")
    assert both(first, second, "counts") == whole.table("counts")
    assert sum(1 for path in place.glob("operators/*")) == 2
    assert third.rows.get("windows", []) == []


def test_a_join_with_a_new_table_begins_empty_beside_a_count_that_goes_on(spark: SparkSession, topic: Filled) -> None:
    other = "CREATE TABLE u (n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'u', 'scan.startup.mode' = 'earliest-offset');"
    joined = "INSERT INTO plain SELECT t.n FROM t JOIN u ON t.n = u.n;"
    with topic([]) as running, BlockingClient(running.nameserver) as client:
        client.create_topic(TopicConfig("u", read_queues=1, write_queues=1))
        client.send_many([Message("u", json.dumps({"n": n}).encode()) for n in (5, 35)])
        change = Change(spark, running)
        first, second = change.from_to(job(COUNTS), other + job(joined, COUNTS))
        whole = change.run(job(COUNTS), "whole")
        client.send_many(events(2))
        third = change.run(DROP + job(COUNTS))
        more = change.run(job(COUNTS), "whole")
    assert both(first, second, "counts") == whole.table("counts")
    assert second.sorted("plain") == [(35,)]
    # The join and its table are gone again.
    assert third.progress.rows_in == len(events(2))
    assert sorted(third.rows["counts"]) == sorted(more.rows["counts"])


def test_a_savepoint_moves_and_goes_on_with_other_tasks_and_its_own_ids(spark: SparkSession, topic: Filled) -> None:
    query = job(COUNTS, windows(20), PAIRS)
    with topic([]) as running, BlockingClient(running.nameserver) as client:
        change = Change(spark, running)
        client.send_many(events(0))
        first = change.run("SET 'parallelism.default' = '2'; " + query)
        checkpoints = running.directory / "checkpoints"
        write_savepoint(checkpoints / "changed", running.directory / "saved", "before")
        shutil.rmtree(checkpoints / "changed")
        moved = running.directory / "elsewhere" / "moved"
        moved.parent.mkdir()
        (running.directory / "saved").rename(moved)
        client.send_many(events(1))
        begin = f"SET 'execution.savepoint.path' = '{moved}'; SET 'parallelism.default' = '3'; "
        second = change.run(begin + query, "second")
        whole = change.run(query, "whole")
        refused = moved / "t" / "operators" / "0-aggregate"
        (file,) = list(refused.glob("*.delta"))[:1]
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(JobError, match=f"The file t/operators/0-aggregate/{file.name}") as damaged:
            change.run(begin + query, "third")
        assert not (checkpoints / "third").exists()
    assert damaged.value.name == "CHECKPOINT_DAMAGED"
    for sink in ("counts", "windows", "pairs"):
        assert both(first, second, sink) == whole.table(sink)


def test_a_half_done_micro_batch_is_finished_by_the_old_query_before_another_one_goes_on(
    spark: SparkSession, topic: Filled
) -> None:
    def fail(rows: ResultRows) -> None:
        raise ValueError("nobody takes rows")

    script = "CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'o');"
    old = job("INSERT INTO o SELECT k, n FROM t WHERE v > 3;", PLAIN).replace("EXECUTE", f"{script} EXECUTE")
    new = old.replace("v > 3;", "v <= 3;", 1)
    with topic([]) as running, BlockingClient(running.nameserver) as client:
        client.create_topic(TopicConfig("o", read_queues=1, write_queues=1))
        change = Change(spark, running)
        client.send_many(events(0))
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        broken = runner.start(compiled(old, running.nameserver), name="changed", bounded=True, on_rows=fail)
        with pytest.raises(JobError, match="nobody takes rows"):
            broken.wait(LIMIT_S)
        assert "begun and is not over" in str(refusal(change, new))
        with pytest.raises(JobError, match="begun and is not over"):
            write_savepoint(running.directory / "checkpoints" / "changed", running.directory / "saved")
        change.run(old)
        client.send_many(events(1))
        # The new query breaks off at once and goes on by itself: it has taken the checkpoint over.
        broken = runner.start(compiled(new, running.nameserver), name="changed", bounded=True, on_rows=fail)
        with pytest.raises(JobError, match="nobody takes rows"):
            broken.wait(LIMIT_S)
        change.run(new)
        bodies = [
            json.loads(message.body)
            for held in client.queue_ranges("o")
            for batch in client.read(held.queue, held.range.min_offset, held.range.max_offset)
            for message in batch.messages()
        ]
    sent = [(n, n * 7 % 12) for n in range(60)]
    assert sorted(row["n"] for row in bodies) == sorted(n for n, v in sent if (v > 3 if n < 30 else v <= 3))


def test_a_savepoint_of_a_running_job_is_of_one_moment_while_the_job_goes_on(
    spark: SparkSession, topic: Filled
) -> None:
    query = job(COUNTS, PAIRS)
    with topic([]) as running, BlockingClient(running.nameserver) as client:
        change, shown = Change(spark, running), Collected()
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        client.send_many(events(0))
        job_of = runner.start(compiled(query, running.nameserver), name="running", on_rows=shown.take)
        try:
            eventually_blocking(lambda: job_of.progress().rows_in >= 30 and shown.rows.get("pairs"))
            saved = job_of.write_savepoint(running.directory / "saved", "now")
            client.send_many(events(1))
            eventually_blocking(lambda: job_of.progress().rows_in >= 60)
        finally:
            job_of.stop()
        from_there = change.run(
            f"SET 'execution.state-recovery.path' = '{running.directory / 'saved'}'; {query}", "copy"
        )
        whole = change.run(query, "whole")
    assert saved.queries[0].micro_batch is not None
    # What the copy shows is what came after the moment, on top of what was there: ends of counts, pairs of later rows.
    assert dict(from_there.rows["counts"]) == dict(whole.rows["counts"])
    pairs = [pair for pair in whole.rows["pairs"] if pair[1] >= 30]
    assert from_there.sorted("pairs") == sorted(pairs, key=repr)


def test_a_job_that_shares_a_query_goes_on_with_another_condition(spark: SparkSession, topic: Filled) -> None:
    def merged(running: Topic, *conditions: str) -> Collected:
        shown = Collected()
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        scripts = [
            f"{TABLES} INSERT INTO {sink} SELECT n FROM t WHERE {one};"
            for sink, one in zip(SINKS, conditions, strict=True)
        ]
        plans = [compiled(script, running.nameserver) for script in scripts]
        jobs = runner.start_merged(plans, names=["one", "two"], bounded=True, on_rows=shown.take)
        assert jobs[0].query == jobs[1].query
        for one in jobs:
            assert one.wait(LIMIT_S)
        for one in jobs:
            one.stop()
        return shown

    with topic([]) as running, BlockingClient(running.nameserver) as client:
        client.send_many(events(0))
        first = merged(running, "v > 3", "v > 5")
        client.send_many(events(1))
        second = merged(running, "v > 3", "v <= 5")
    rows = [(n, n * 7 % 12) for n in range(60)]
    assert sorted(first.rows["plain"] + second.rows["plain"]) == [(n,) for n, v in rows if v > 3]
    expected = [(n,) for n, v in rows if (v > 5 if n < 30 else v <= 5)]
    assert sorted(first.rows["other"] + second.rows["other"]) == expected
