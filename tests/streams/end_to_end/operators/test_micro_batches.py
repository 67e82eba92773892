"""The same SQL over the same rows gives the same result, however the rows are cut into micro-batches."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Topic, bounded_run, compiled

from millstream.client.blocking import BlockingClient
from millstream.streams.jobs.runner import JobRunner

pytestmark = pytest.mark.spark

ROWS = 1000
START = datetime.datetime(2026, 3, 1, 12, 0)
SCRIPT = """
SET 'millstream.max-rows-per-trigger' = '{rows}';
SET 'execution.runtime-mode' = '{mode}';
CREATE TABLE readings (
  id INT, device STRING, celsius DOUBLE, at STRING,
  ts AS TO_TIMESTAMP(at),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE hot (id INT, device STRING) WITH ('connector' = 'print');
CREATE TABLE counts (window_end TIMESTAMP(3), device STRING, n BIGINT, warmest DOUBLE, mean BIGINT) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO hot SELECT id, device FROM readings WHERE celsius > 90 AND device LIKE 'd%';
INSERT INTO counts SELECT window_end, device, COUNT(*), MAX(celsius), AVG(id)
  FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY window_start, window_end, device;
END;
"""


def readings() -> list[dict[str, object]]:
    """Rows whose event time rises, but up to 8 s out of order: the watermark waits for 10 s."""
    chance = random.Random(11)
    rows: list[dict[str, object]] = []
    for number in range(ROWS):
        moment = START + datetime.timedelta(seconds=number * 0.5 - chance.random() * 8)
        rows.append(
            {
                "id": number,
                "device": f"d{chance.randrange(4)}",
                "celsius": round(chance.random() * 100, 1),
                "at": moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
            }
        )
    return rows


def messages() -> list[tuple[int, bytes]]:
    """Two fast queues and a slow one; now and then a body that is no JSON."""
    chance = random.Random(5)
    placed: list[tuple[int, bytes]] = []
    for number, row in enumerate(readings()):
        placed.append((2 if chance.random() < 0.03 else chance.randrange(2), json.dumps(row).encode()))
        if number % 100 == 50:
            placed.append((number % 3, b"{broken"))
    return placed


def expected_hot() -> list[tuple[object, ...]]:
    return sorted(((row["id"], row["device"]) for row in readings() if float(str(row["celsius"])) > 90), key=repr)


def expected_counts() -> list[tuple[object, ...]]:
    groups: dict[tuple[datetime.datetime, object], list[dict[str, object]]] = {}
    for row in readings():
        moment = datetime.datetime.fromisoformat(str(row["at"]))
        end = moment.replace(second=moment.second // 20 * 20, microsecond=0) + datetime.timedelta(seconds=20)
        groups.setdefault((end, row["device"]), []).append(row)
    counted = [
        (end, device, len(rows), max(float(str(row["celsius"])) for row in rows), sum(int(str(row["id"])) for row in rows) // len(rows))
        for (end, device), rows in groups.items()
    ]  # fmt: skip
    return sorted(counted, key=repr)


def test_1_5_and_50_micro_batches_and_batch_mode_agree_with_a_plain_count(
    spark: SparkSession, topic: Callable[..., AbstractContextManager[Topic]]
) -> None:
    batches: Counter[str] = Counter()
    with topic(messages(), queues=3) as running:
        for name, rows, mode in (
            ("one", 2000, "streaming"),
            ("five", 210, "streaming"),
            ("fifty", 21, "streaming"),
            ("batch", 2000, "batch"),
        ):
            result = bounded_run(spark, running, SCRIPT.format(rows=rows, mode=mode), name=name)
            assert result.sorted("hot") == expected_hot(), name
            assert result.sorted("counts") == expected_counts(), name
            assert (result.progress.rows_in, result.progress.malformed, result.progress.late) == (1010, 10, 0), name
            batches[name] = result.progress.batches
        with BlockingClient(running.nameserver) as client:
            dead = sum(item.range.max_offset for item in client.queue_ranges("t_dead_letter"))
    assert dead == 40
    assert batches["five"] >= 5
    assert batches["fifty"] >= 45


def test_a_job_that_is_stopped_goes_on_from_its_checkpoint_and_doubles_nothing(
    spark: SparkSession, topic: Callable[..., AbstractContextManager[Topic]]
) -> None:
    with topic(messages(), queues=3) as running:
        target = running.directory / "out"
        script = SCRIPT.format(rows=120, mode="streaming").replace(
            "CREATE TABLE hot (id INT, device STRING) WITH ('connector' = 'print')",
            f"CREATE TABLE hot (id INT, device STRING) WITH ('connector' = 'filesystem', 'path' = '{target}')",
        )
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        counts: list[tuple[object, ...]] = []
        plan = compiled(script, running.nameserver)
        for bounded in (False, False, True):
            job = runner.start(plan, name="stopped", bounded=bounded, on_rows=lambda rows: counts.extend(rows.rows))
            while not job.wait(0.05) and (bounded or job.progress().batches < 3):
                pass
            job.stop()
    written = [json.loads(line) for path in target.glob("*.json") for line in path.read_text().splitlines()]
    assert sorted(((row["id"], row["device"]) for row in written), key=repr) == expected_hot()
    # The print sink may show the rows of the batch that was cut off twice, but loses none.
    assert sorted(set(counts), key=repr) == expected_counts()


def test_what_changes_with_each_micro_batch_is_not_in_the_code_that_spark_makes(
    spark: SparkSession, tmp_path: Path
) -> None:
    script = """
    SET 'millstream.max-rows-per-trigger' = '10';
    CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence',
      'fields.n.start' = '1', 'fields.n.end' = '30');
    CREATE TABLE nowhere (a BIGINT, b BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO nowhere SELECT MOD(n, 3), COUNT(DISTINCT n) FROM numbers
      WHERE n < UNIX_TIMESTAMP() AND CURRENT_DATE > DATE '2000-01-01' AND CURRENT_TIMESTAMP > TO_TIMESTAMP_LTZ(n, 3)
      GROUP BY MOD(n, 3);
    """
    made = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()  # type: ignore[union-attr]
    counts = []
    for name in ("first", "second"):
        runner = JobRunner(spark, nameserver="127.0.0.1:1", checkpoint_root=tmp_path / name)
        job = runner.start(compiled(script, "127.0.0.1:1"), name=name, bounded=True)
        assert job.wait(LIMIT_S)
        assert job.progress().batches >= 3
        counts.append(made.getCount())
    # Spark keeps code by its text: what it made in the first run fits all micro-batches of the second.
    assert counts[0] == counts[1]
