"""Jobs that write tables of a database and read them, over what really happens to them: a micro-batch twice."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run, filled_topic

pytestmark = pytest.mark.spark

ORDERS = [(number, f"item {number % 3}", number) for number in range(1, 13)]
CUT = "SET 'millstream.max-rows-per-trigger' = '5';"
BATCH = "SET 'execution.runtime-mode' = 'batch';"
WRITING = """
CREATE TABLE orders (id BIGINT, item STRING, amount INT) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE copies (id BIGINT, item STRING, amount INT)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{directory}/shop.db', 'table-name' = 'copies');
CREATE TABLE sums (item STRING, amount INT, PRIMARY KEY (item) NOT ENFORCED)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{directory}/shop.db', 'table-name' = 'sums');
EXECUTE STATEMENT SET BEGIN
INSERT INTO copies SELECT id, item, amount FROM orders;
INSERT INTO sums SELECT item, CAST(SUM(amount) AS INT) FROM orders GROUP BY item;
END;
"""
READING = """
CREATE TABLE items (id BIGINT, name STRING, amount INT) WITH ('connector' = 'jdbc', 'table-name' = 'items',
  'url' = 'jdbc:sqlite:{directory}/shop.db', 'scan.partition.column' = 'id', 'scan.partition.num' = '3',
  'scan.partition.lower-bound' = '1', 'scan.partition.upper-bound' = '12');
CREATE TABLE large (id BIGINT, name STRING) WITH ('connector' = 'print');
CREATE TABLE sums (name STRING, amount INT) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO large SELECT id, name FROM items WHERE id > 9;
INSERT INTO sums SELECT name, CAST(SUM(amount) AS INT) FROM items WHERE id > 9 GROUP BY name;
END;
"""


def execute(directory: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(directory / "shop.db")
    rows = connection.execute(statement).fetchall()
    connection.commit()
    connection.close()
    return rows


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Topic]:
    execute(tmp_path, "CREATE TABLE copies (id INTEGER, item TEXT, amount INTEGER)")
    execute(tmp_path, "CREATE TABLE sums (item TEXT PRIMARY KEY, amount INTEGER)")
    bodies = [
        (0, json.dumps({"id": number, "item": item, "amount": amount}).encode()) for number, item, amount in ORDERS
    ]
    with filled_topic(tmp_path, bodies, 1) as topic:
        yield topic


def forget_the_last_rows(checkpoint: Path) -> None:
    """As after a crash between the sinks and Spark's own note that a micro-batch is done; the last one is but a tick."""
    for directory, count in (("offsets", 1), ("commits", 2)):
        files = [file for file in (checkpoint / "spark" / directory).iterdir() if file.name.isdigit()]
        for file in sorted(files, key=lambda file: int(file.name))[-count:]:
            file.unlink()
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_a_micro_batch_that_is_repeated_is_in_the_tables_once(spark: SparkSession, orders: Topic) -> None:
    script = CUT + WRITING.replace("{directory}", str(orders.directory))
    bounded_run(spark, orders, script, name="shop")
    forget_the_last_rows(orders.directory / "checkpoints" / "shop" / "orders")
    again = bounded_run(spark, orders, script, name="shop")
    assert again.progress.rows_out["copies"] > 0
    assert execute(orders.directory, "SELECT * FROM copies ORDER BY id") == ORDERS
    sums = {"item 0": 3 + 6 + 9 + 12, "item 1": 1 + 4 + 7 + 10, "item 2": 2 + 5 + 8 + 11}
    assert dict(execute(orders.directory, "SELECT * FROM sums")) == sums


@pytest.mark.parametrize("mode", [CUT, BATCH])
def test_a_table_of_a_database_is_read_once(mode: str, spark: SparkSession, tmp_path: Path) -> None:
    execute(tmp_path, "CREATE TABLE items (id INTEGER, name TEXT, amount INTEGER)")
    for row in ORDERS:
        execute(tmp_path, f"INSERT INTO items VALUES {row}")
    script = mode + READING.replace("{directory}", str(tmp_path))
    found = bounded_run(spark, Topic("", tmp_path), script, name="read")
    assert found.sorted("large") == [(10, "item 1"), (11, "item 2"), (12, "item 0")]
    assert found.table("sums") == Counter([("item 0", 12), ("item 1", 10), ("item 2", 11)])
