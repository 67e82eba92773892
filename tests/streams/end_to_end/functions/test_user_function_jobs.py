"""Jobs that call users' functions: in one stage, what becomes of rows for which they fail, aggregates for every cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Collected, Topic, bounded_run, filled_topic

from millstream.client.blocking import BlockingClient
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.testing import StreamTest

pytestmark = pytest.mark.spark

TopicOf = Callable[..., AbstractContextManager[Topic]]

TABLES = """
CREATE FUNCTION halved AS 'sample_calls:halved' LANGUAGE PYTHON;
CREATE FUNCTION doubled AS 'sample_calls:doubled_column' LANGUAGE PYTHON;
CREATE FUNCTION answered AS 'sample_calls:answered' LANGUAGE PYTHON;
CREATE FUNCTION steps AS 'sample_calls:steps' LANGUAGE PYTHON;
CREATE FUNCTION wmean AS 'sample_aggregates:WeightedMean' LANGUAGE PYTHON;
CREATE FUNCTION seen AS 'sample_aggregates:Seen' LANGUAGE PYTHON;
CREATE TABLE t (host STRING, n BIGINT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '0' SECOND) WITH ('connector' = 'rocketmq', 'topic' = 't');
"""
BATCH = "SET 'execution.runtime-mode' = 'batch';"
NUMBERS = [(0, json.dumps({"host": "ab"[n % 2], "n": n, "ms": n * 1000}).encode()) for n in range(1, 9)]


@pytest.fixture(autouse=True)
def _samples(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = Path(__file__).parents[2]
    for directory in ("functions", "operators"):
        monkeypatch.syspath_prepend(str(tests / directory))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    with filled_topic(tmp_path_factory.mktemp("numbers"), NUMBERS, 1) as topic:
        yield topic


def letters(topic: Topic) -> list[tuple[bytes, dict[str, str]]]:
    with BlockingClient(topic.nameserver) as client:
        return [
            (message.body, dict(message.user_properties))
            for item in client.queue_ranges("t_dead_letter")
            for batch in client.read(item.queue, 0, item.range.max_offset)
            for message in batch.messages()
        ]


def test_functions_of_all_kinds_run_together_and_rows_that_fail_are_dead_letters(
    spark: SparkSession, topic: TopicOf
) -> None:
    query = "SELECT n, halved(n) AS h, doubled(n) + 1 AS d, answered(n) AS a FROM t WHERE n < 5"
    with topic(NUMBERS) as running:
        result = bounded_run(spark, running, BATCH + TABLES + query, name="together")
        found = letters(running)
    assert result.rows["result"] == [(2, 1.0, 5, "answer 2"), (4, 2.0, 9, "answer 4")]
    assert result.progress.failed_calls == {"sample_calls.halved": 2}
    assert [json.loads(body)["n"] for body, _ in found] == [1, 3]
    told = found[0][1]
    assert told["reason"] == "sample_calls.halved: ValueError: 1 is odd"
    assert (told["arguments"], told["source_topic"]) == ("1", "t")
    assert "raise ValueError" in told["traceback"]


def test_a_call_is_made_where_its_branch_is_taken_and_null_where_the_job_says_so(
    spark: SparkSession, numbers: Topic
) -> None:
    query = "SELECT n, CASE WHEN MOD(n, 2) = 0 THEN halved(n) END AS h FROM t WHERE n < 4 OR halved(n) > 3"
    script = "SET 'millstream.user-function.on-error' = 'null';" + BATCH + TABLES + query
    result = bounded_run(spark, numbers, script, name="branches")
    assert result.rows["result"] == [(1, None), (2, 1.0), (3, None), (8, 4.0)]
    assert result.progress.failed_calls == {"sample_calls.halved": 2}


@pytest.mark.parametrize("mode", ["", BATCH])
def test_a_job_that_ends_at_a_failed_call_shows_the_users_traceback_and_the_row(
    mode: str, spark: SparkSession, numbers: Topic
) -> None:
    script = "SET 'millstream.user-function.on-error' = 'fail';" + mode + TABLES + "SELECT halved(n) FROM t"
    with pytest.raises(JobError) as failed:
        bounded_run(spark, numbers, script, name=f"strict{len(mode)}")
    assert "sample_calls.halved(1): ValueError: 1 is odd" in str(failed.value)
    assert 'raise ValueError(f"{number} is odd")' in str(failed.value)


GROUPED = "SELECT host, wmean(doubled(n), n), seen(DISTINCT n) FILTER (WHERE n > 2) FROM t GROUP BY host"
OVER = "SELECT seen(n) OVER (PARTITION BY host ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t"
WINDOWS = """SELECT seen(n), wmean(n)
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND)) GROUP BY window_start, window_end"""
RETRACTED = "SELECT wmean(c) FROM (SELECT host, COUNT(*) AS c FROM t GROUP BY host)"
CUT = "SET 'millstream.max-rows-per-trigger' = '3';"


def left_by(result: Collected) -> list[tuple[object, ...]]:
    """The rows that are left of all that were told."""
    left: list[tuple[object, ...]] = []
    for row, kind in zip(result.rows["result"], result.kinds["result"], strict=True):
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            left.append(row)
        else:
            left.remove(row)
    return sorted(left)


@pytest.mark.parametrize(
    ("name", "query", "rows"),
    [
        ("grouped", GROUPED, [("a", 12.0, [4, 6, 8]), ("b", 10.5, [3, 5, 7])]),
        ("over", OVER, [([1],), ([1, 3],), ([2],), ([2, 4],), ([3, 5],), ([4, 6],), ([5, 7],), ([6, 8],)]),
        (
            "windows",
            WINDOWS,
            [([1], 1.0), ([1, 2, 3], 2.0), ([2, 3, 4, 5], 3.5), ([4, 5, 6, 7], 5.5), ([6, 7, 8], 7.0), ([8], 8.0)],
        ),
        ("retracted", RETRACTED, [(4.0,)]),
    ],
)
def test_aggregates_of_the_user_are_the_same_in_a_stream_and_in_batch(
    name: str, query: str, rows: list[tuple[object, ...]], spark: SparkSession, numbers: Topic
) -> None:
    assert left_by(bounded_run(spark, numbers, CUT + TABLES + query, name=name)) == rows
    assert left_by(bounded_run(spark, numbers, BATCH + TABLES + query, name=f"{name}-batch")) == rows


def test_rows_for_which_an_aggregate_fails_are_dead_letters_and_do_not_count(
    spark: SparkSession, topic: TopicOf
) -> None:
    bodies = [(0, json.dumps({"host": "a", "n": n}).encode()) for n in (1, 13, 2)]
    with topic(bodies) as running:
        result = bounded_run(spark, running, TABLES + "SELECT host, seen(n) FROM t GROUP BY host", name="unlucky")
        ((body, told),) = letters(running)
    assert left_by(result) == [("a", [1, 2])]
    assert result.progress.failed_calls == {"sample_aggregates.Seen": 1}
    assert (json.loads(body), told["reason"]) == ({"arguments": [13]}, "sample_aggregates.Seen: ValueError: unlucky")


@pytest.mark.parametrize(
    ("name", "query", "rows"),
    [
        ("script", "SELECT doubled(20) + 2 AS n", [(42,)]),
        (
            "sets",
            "SELECT doubled(n), COUNT(*) FROM t WHERE n < 3 GROUP BY ROLLUP (doubled(n))",
            [(2, 1), (4, 1), (None, 2)],
        ),
        (
            "join",
            "SELECT a.n, b.n FROM t AS a JOIN t AS b ON a.host = b.host AND doubled(a.n - b.n) > 10",
            [(7, 1), (8, 2)],
        ),
    ],
)
def test_a_call_may_stand_wherever_an_expression_does(
    name: str, query: str, rows: list[tuple[object, ...]], spark: SparkSession, numbers: Topic
) -> None:
    found = bounded_run(spark, numbers, BATCH + TABLES + query, name=name)
    table = found.table("result")
    assert sorted(table.elements(), key=str) == rows


def test_the_test_kit_keeps_the_rows_that_functions_fail_for() -> None:
    test = StreamTest(TABLES.replace("CREATE TABLE t", "CREATE TABLE fed") + "SELECT halved(n) AS h FROM fed;")
    test.feed("fed", {"host": "a", "n": 3, "ms": 1}, {"host": "a", "n": 4, "ms": 2})
    result = test.run()
    assert result.rows() == [{"h": 2.0}]
    ((table, reason, body),) = [(one.table, one.reason, json.loads(one.body)) for one in result.failed]
    assert (table, reason, body["n"]) == ("fed", "ValueError: 3 is odd", 3)


def test_rows_of_an_async_table_function_stand_beside_each_row(spark: SparkSession, numbers: Topic) -> None:
    query = "SELECT n, step FROM t, LATERAL TABLE(steps(n)) AS s(step) WHERE n < 3"
    result = bounded_run(spark, numbers, TABLES + query, name="steps")
    assert result.rows["result"] == [(1, 0), (2, 0), (2, 1)]
