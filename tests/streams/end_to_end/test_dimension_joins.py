"""Joins with dimension tables on Spark: what Spark's own join finds, and one version for each micro-batch."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run, filled_topic

pytestmark = pytest.mark.spark

EVENTS = (
    "CREATE TABLE events (n BIGINT, k STRING, v INT, p AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = 't');"
)
NAMES = """
CREATE TABLE names (k STRING, kind INT, label STRING) WITH ('connector' = 'jdbc',
  'url' = 'jdbc:sqlite:{directory}/names.db', 'table-name' = 'names', 'lookup.cache' = 'FULL');
"""
JOINS = """
CREATE TABLE every_match (n BIGINT, label STRING) WITH ('connector' = 'print');
CREATE TABLE some_matches (n BIGINT, label STRING) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO every_match SELECT e.n, d.label FROM events AS e JOIN names FOR SYSTEM_TIME AS OF e.p AS d
  ON e.k = d.k AND d.kind > 1 AND d.label <> e.k;
INSERT INTO some_matches SELECT e.n, d.label FROM events AS e LEFT JOIN names FOR SYSTEM_TIME AS OF e.p AS d
  ON e.k = d.k AND d.kind < e.v AND d.label IN ('a', 'b', 'ä');
END;
"""
KEYS = ("a", "b", "", "ä", "𝄞", None)


def events_of(count: int) -> list[dict[str, Any]]:
    chosen = random.Random(8)
    return [{"n": n, "k": chosen.choice((*KEYS, "none")), "v": chosen.randint(0, 4)} for n in range(count)]


def names_of(count: int) -> list[tuple[Any, ...]]:
    chosen = random.Random(9)
    return [
        (chosen.choice(KEYS), chosen.choice((None, 0, 1, 2, 3)), chosen.choice((*KEYS, "long" * 40)))
        for _ in range(count)
    ]


def keep(directory: Path, rows: list[tuple[Any, ...]]) -> None:
    """Make these the rows of the table names."""
    with closing(sqlite3.connect(directory / "names.db")) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS names (k TEXT, kind INTEGER, label TEXT)")
        connection.execute("DELETE FROM names")
        connection.executemany("INSERT INTO names VALUES (?, ?, ?)", rows)


@pytest.fixture
def events(tmp_path: Path) -> Iterator[Topic]:
    bodies = [(event["n"] % 2, json.dumps(event).encode()) for event in events_of(120)]
    with filled_topic(tmp_path, bodies, 2) as topic:
        yield topic


def test_a_dimension_table_finds_what_sparks_own_join_finds(spark: SparkSession, events: Topic) -> None:
    keep(events.directory, names_of(40))
    script = "SET 'millstream.max-rows-per-trigger' = '50';" + EVENTS + NAMES + JOINS
    found = bounded_run(spark, events, script.replace("{directory}", str(events.directory)), name="own")
    left = spark.createDataFrame([(e["n"], e["k"], e["v"]) for e in events_of(120)], "n long, k string, v int")
    right = spark.createDataFrame(names_of(40), "k string, kind int, label string")
    left.createOrReplaceTempView("left_rows")
    right.createOrReplaceTempView("right_rows")
    every = spark.sql(
        "SELECT e.n, d.label FROM left_rows e JOIN right_rows d ON e.k = d.k AND d.kind > 1 AND d.label <> e.k"
    )
    some = spark.sql(
        "SELECT e.n, d.label FROM left_rows e LEFT JOIN right_rows d"
        " ON e.k = d.k AND d.kind < e.v AND d.label IN ('a', 'b', 'ä')"
    )
    assert found.table("every_match") == Counter(tuple(row) for row in every.collect())
    assert found.table("some_matches") == Counter(tuple(row) for row in some.collect())
