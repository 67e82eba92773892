"""Each kind of database as jobs use it: keys looked up, parts read to record batches, changes written and read back."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa

from millstream.streams.connectors.jdbc.lookup import DatabaseTable
from millstream.streams.connectors.jdbc.sink import DatabaseSink
from millstream.streams.jobs.outputs import outputs_of
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.expressions import Call, Column, Literal
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING, DataType, TypeKind
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, Written
from millstream.streams.spark.source.connected import ConnectedBatchReader
from millstream.streams.sql.session.compiler import SqlSession
from table_reads import spec_of_table

NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
NOON_US = 1_772_366_400_000_000
COLUMNS = (
    PhysicalColumn("id", BIGINT),
    PhysicalColumn("name", STRING),
    PhysicalColumn("price", DataType(TypeKind.DECIMAL, precision=10, scale=2)),
    PhysicalColumn("open", BOOLEAN),
    PhysicalColumn("since", DataType(TypeKind.TIMESTAMP, precision=3)),
)
NAMES = tuple(column.name for column in COLUMNS)
TYPES = {
    "sqlite": "id INTEGER, name TEXT, price NUMERIC, open INTEGER, since TEXT",
    "postgresql": "id BIGINT, name TEXT, price NUMERIC(10, 2), open BOOLEAN, since TIMESTAMP(3)",
    "mysql": "id BIGINT, name VARCHAR(20), price DECIMAL(10, 2), open BOOLEAN, since DATETIME(3)",
}
ROWS = [(1, "one", "1.50", True, "2026-03-01 12:00:00"), (2, "TWO", None, False, None), (2, "two", "2.25", None, None)]


@pytest.fixture
def items(shop: Any) -> Table:
    name = shop.make(TYPES[shop.kind])
    shop.connection.run_each(shop.database.insert(name, NAMES), ROWS)
    return Table("items", COLUMNS, {"connector": "jdbc", "table-name": name, **shop.options})


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("id", 1, [1]),
        ("id", 2, [2, 2]),
        # MySQL finds texts in any case; a key is equal in its own.
        ("name", "two", [2]),
        ("price", Decimal("2.25"), [2]),
        ("open", True, [1]),
        ("since", NOON_US, [1]),
        ("id", 3, []),
    ],
)
def test_rows_are_found_by_keys_of_every_kind(key: str, value: Any, found: list[int], items: Table) -> None:
    table = DatabaseTable(LookupSpec.of(items, items.options, list(NAMES), [key]))
    assert [row[0] for row in table.find([(value,)]).get((value,), [])] == found
    assert len(table.all_rows()) == 3


def test_rows_are_read_with_their_types(items: Table, tmp_path: Path) -> None:
    condition = Call("=", (Column("id", BIGINT), Literal(1, INT)), BOOLEAN)
    reader = ConnectedBatchReader(spec_of_table(items, tmp_path, batch=True, conditions=(condition,)))
    (task,) = reader.partitions()
    (batch,) = reader.read(task)
    (row,) = batch.select(NAMES).to_pylist()
    assert row == {"id": 1, "name": "one", "price": Decimal("1.50"), "open": True, "since": NOON}


def sink_of(shop: Any, table: str, more: str) -> DatabaseSink:
    options = "".join(f", '{name}' = '{value}'" for name, value in shop.options.items())
    script = (
        "CREATE TABLE s (id BIGINT, name STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');"
        "CREATE TABLE d (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector' = 'jdbc', 'table-name' = '{table}'{options}{more}); INSERT INTO d SELECT * FROM s"
    )
    plan = SqlSession().compile(script)[-1]
    assert isinstance(plan, JobPlan)
    (output,) = outputs_of(plan, JobSettings.of(plan.settings, ""), None)
    assert isinstance(output.sink, DatabaseSink)
    return output.sink


def deliver(sink: DatabaseSink, notes: Path, job: str, batch_id: int, tasks: list[range]) -> None:
    sink.begin(Attempt(job, batch_id, 0, notes))
    written = []
    for number, ids in enumerate(tasks):
        writer = sink.writer(SinkTask(job, batch_id, number))
        writer.write(pa.RecordBatch.from_pydict({"id": list(ids), "name": [f"n{batch_id}" for _ in ids]}))
        written.append(Written(SinkTask(job, batch_id, number), len(ids), writer.finish()))
    sink.commit(batch_id, written)


def test_several_transactions_write_a_micro_batch_each_once(shop: Any, tmp_path: Path) -> None:
    """Also where the repetition asks for another number of them, and divides the rows in another way."""
    table, job = shop.make("id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20)"), uuid.uuid4().hex[:12]
    deliver(sink_of(shop, table, ", 'sink.parallelism' = '3'"), tmp_path, job, 0, [range(50), range(50, 90)])
    shop.connection.run(f"DELETE FROM {shop.database.table(table)} WHERE id < 10")
    deliver(sink_of(shop, table, ", 'sink.parallelism' = '2'"), tmp_path, job, 0, [range(90)])
    # What the database had of the micro-batch was not written again.
    assert [row[0] for row in shop.rows(table)] == list(range(10, 90))
    deliver(sink_of(shop, table, ", 'sink.parallelism' = '2'"), tmp_path, job, 1, [range(20)])
    assert {row[1] for row in shop.rows(table) if row[0] < 20} == {"n1"}
    assert len(shop.rows(table)) == 90
