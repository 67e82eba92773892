"""Jobs over tables behind the protocols of connectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from example_package import installed

pytestmark = pytest.mark.spark

ROWS = [(0, json.dumps({"id": number, "word": f"w{number % 3}"}).encode()) for number in range(20)]
Filled = Callable[..., AbstractContextManager[Topic]]


def test_a_connector_of_another_package_is_written_and_read_by_sql(
    spark: SparkSession, topic: Filled, tmp_path: Path
) -> None:
    notes = f"CREATE TABLE notes (id INT, word STRING) WITH ('connector' = 'folder', 'path' = '{tmp_path}/notes');"
    with topic(ROWS) as running, installed(tmp_path / "installed"):
        source = "CREATE TABLE t (id INT, word STRING) WITH ('connector' = 'rocketmq', 'topic' = 't');"
        bounded_run(spark, running, f"{source} {notes} INSERT INTO notes SELECT * FROM t WHERE id < 12", name="written")
        told = "CREATE TABLE told (word STRING, n BIGINT) WITH ('connector' = 'print');"
        count = "INSERT INTO told SELECT word, COUNT(*) FROM notes GROUP BY word"
        found = bounded_run(spark, running, f"{notes} {told} {count}", name="read")
    assert found.table("told") == {("w0", 4): 1, ("w1", 4): 1, ("w2", 4): 1}
    assert found.progress.rows_in == 12
    assert not list((tmp_path / "notes").glob("*.unfinished"))
