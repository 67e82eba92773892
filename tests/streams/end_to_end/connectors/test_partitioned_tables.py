"""Tables of files that are partitioned, written and read by jobs."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, compiled

from millstream.streams.jobs.runner import JobRunner

pytestmark = pytest.mark.spark

BATCH = "SET 'execution.runtime-mode' = 'batch';"
TABLE = (
    "CREATE TABLE f (id INT, n BIGINT, d DATE, at TIMESTAMP(3), w STRING) PARTITIONED BY (w, d, n, at)"
    " WITH ('connector' = 'filesystem', 'path' = '{path}/out', 'format' = 'parquet',"
    " 'sink.partition-commit.policy.kind' = 'success-file');"
)
ROWS = (
    "INSERT INTO f VALUES (1, 10, DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05.6', 'a/b:'),"
    " (2, 10, DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05.6', 'a/b:'),"
    " (3, CAST(NULL AS BIGINT), CAST(NULL AS DATE), CAST(NULL AS TIMESTAMP(3)), CAST(NULL AS STRING))"
)
DAY, AT = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5, 600_000)
NOTHING = (3, None, None, None, None)
RUSH = """
CREATE TABLE made_up (event_type INT, bid ROW<price BIGINT, `dateTime` TIMESTAMP(3)>, ts AS bid.`dateTime`,
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'nexmark', 'events.num' = '1200', 'first-event.rate' = '10', 'next-event.rate' = '10',
  'person.proportion' = '0', 'auction.proportion' = '0', 'base-time' = '1767225600000', 'keep-alive' = 'true');
SET 'millstream.max-rows-per-trigger' = '400';
CREATE TABLE f (n BIGINT, hm STRING) PARTITIONED BY (hm) WITH ('connector' = 'filesystem', 'path' = '{path}/out',
  'format' = 'csv', 'sink.partition-commit.policy.kind' = 'success-file',
  'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '10 s',
  'partition.time-extractor.timestamp-pattern' = '2026-01-01 $hm');
"""
EACH = "INSERT INTO f SELECT bid.price, DATE_FORMAT(ts, 'HH:mm:') || SUBSTRING(DATE_FORMAT(ts, 'ss'), 1, 1) || '0' FROM made_up"
COUNTS = (
    "INSERT INTO f SELECT COUNT(*), DATE_FORMAT(window_start, 'HH:mm:ss')"
    " FROM TABLE(TUMBLE(TABLE made_up, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"
)


def run(spark: SparkSession, root: Path, script: str, name: str) -> Collected:
    found = Collected()
    runner = JobRunner(spark, nameserver="127.0.0.1:9", checkpoint_root=root / "checkpoints")
    job = runner.start(compiled(script.replace("{path}", str(root)), ""), name=name, on_rows=found.take)
    assert job.wait(LIMIT_S), job.progress()
    return found


def test_partition_columns_come_back_with_their_types_and_overwriting_replaces_what_gets_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    run(spark, tmp_path, BATCH + TABLE + ROWS, "write")
    full, none = "w=a%2Fb%3A/d=2026-01-02/n=10/at=2026-01-02 03%3A04%3A05.6", "__DEFAULT_PARTITION__"
    marks = sorted(str(path.parent.relative_to(tmp_path / "out")) for path in tmp_path.glob("out/*/*/*/*/_SUCCESS"))
    assert marks == sorted([full, f"w={none}/d={none}/n={none}/at={none}"])
    read = run(spark, tmp_path, BATCH + TABLE + "SELECT * FROM f", "read")
    assert read.sorted("result") == [(1, 10, DAY, AT, "a/b:"), (2, 10, DAY, AT, "a/b:"), NOTHING]
    facts = "w STRING, name STRING METADATA FROM 'file.path' VIRTUAL, bytes BIGINT METADATA FROM 'file.size' VIRTUAL)"
    asked = "SELECT n + 1, id, name LIKE '%/out/w=a%', bytes > 9 FROM f WHERE w = 'a/b:' AND d > DATE '2026-01-01'"
    some = run(spark, tmp_path, BATCH + TABLE.replace("w STRING)", facts) + asked, "some")
    assert some.sorted("result") == [(11, 1, True, True), (11, 2, True, True)]
    again = "INSERT OVERWRITE f SELECT MAX(id) + 10, n, d, at, w FROM f WHERE n = 10 GROUP BY n, d, at, w"
    run(spark, tmp_path, BATCH + TABLE + again, "again")
    after = run(spark, tmp_path, BATCH + TABLE + "SELECT * FROM f", "after")
    assert after.sorted("result") == [(12, 10, DAY, AT, "a/b:"), NOTHING]


def partitions(root: Path) -> list[str]:
    """Those that are told to be whole."""
    return sorted(path.parent.name[3:].replace("%3A", ":") for path in root.glob("out/hm=*/_SUCCESS"))


@pytest.mark.parametrize("query", [EACH, COUNTS], ids=["rows", "windows"])
def test_a_partition_is_told_to_be_whole_when_the_watermark_has_passed_it(
    query: str, spark: SparkSession, tmp_path: Path
) -> None:
    script = RUSH.replace("{path}", str(tmp_path)) + query
    runner = JobRunner(spark, nameserver="127.0.0.1:9", checkpoint_root=tmp_path / "checkpoints")
    job = runner.start(compiled(script, ""), name="rush")
    # 120 s of events: the last time is 119.9 s, less the 1 s of the watermark; a partition lasts and waits 10 s.
    wanted = [f"00:0{second // 60}:{second % 60:02}" for second in range(0, 110, 10)]
    while partitions(tmp_path) != wanted and not job.wait(0.1):
        pass
    assert not job.wait(0)
    job.stop()
    assert partitions(tmp_path) == wanted
    rows: Counter[str] = Counter()
    for path in tmp_path.glob("out/hm=*/part-*.csv"):
        rows[path.parent.name[3:].replace("%3A", ":")] += len(path.read_text().splitlines())
    assert {rows[name] for name in wanted} == ({100} if query is EACH else {1})
