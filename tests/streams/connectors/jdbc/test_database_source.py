"""A table of a database as a source: parts, rows that do not fit, what is asked of the database, and what is told."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.connectors.jdbc.source import QUEUE, DatabasePlan
from millstream.streams.errors import JobError
from millstream.streams.jobs.outputs import ends_by_itself, open_source
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.expressions import Call, Column, Literal
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING
from millstream.streams.spark.source.connected import (
    ConnectedBatchReader,
    ConnectedSource,
    ConnectedSpec,
    ConnectedStreamReader,
)
from millstream.streams.spark.source.dead_letters import malformed_spool
from millstream.streams.spark.source.position import Position
from table_reads import rows_of_tasks, spec_of_source

COLUMNS = (PhysicalColumn("id", BIGINT), PhysicalColumn("name", STRING))
PARTS = {
    "scan.partition.column": "id", "scan.partition.num": "3", "scan.partition.lower-bound": "1",
    "scan.partition.upper-bound": "9",
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE items (id INTEGER, name TEXT)")
    connection.executemany("INSERT INTO items VALUES (?, ?)", [(number, f"n{number}") for number in range(1, 11)])
    connection.commit()
    connection.close()
    return file


def source_of(file: Path, columns: tuple[PhysicalColumn, ...] = COLUMNS, **more: str) -> ConnectedSource:
    options = {"connector": "jdbc", "url": f"jdbc:sqlite:{file}", "table-name": "items", **more}
    source = open_source(Table("t", columns, options), JobSettings.of({}, "localhost:1"))
    assert isinstance(source, ConnectedSource)
    return source


def spec_of(source: ConnectedSource, directory: Path, *names: str, **more: Any) -> ConnectedSpec:
    wanted = {column.name: column.type for column in source.table.physical if not names or column.name in names}
    return spec_of_source(source, directory, wanted, parallelism=2, **{"batch": True, **more})


def rows_of(spec: ConnectedSpec) -> list[list[Any]]:
    """The rows of each task, without the hidden tick."""
    reader = ConnectedBatchReader(spec)
    return [[tuple(row.values())[:-1] for row in rows_of_tasks(reader, [task])] for task in reader.partitions()]


def test_a_table_is_read_in_parts(file: Path, tmp_path: Path) -> None:
    rows = rows_of(spec_of(source_of(file, **PARTS), tmp_path))
    assert [[row[0] for row in part] for part in rows] == [[1, 2, 3], [4, 5, 6], [7, 8, 9, 10]]
    assert rows[0][0] == (1, "n1")


def test_only_columns_that_are_wanted_are_read(file: Path, tmp_path: Path) -> None:
    assert rows_of(spec_of(source_of(file), tmp_path, "name"))[0][:2] == [("n1",), ("n2",)]
    nothing = spec_of_source(source_of(file), tmp_path, {}, batch=True)
    assert rows_of(nothing) == [[()] * 10]


def test_rows_that_nobody_wants_stay_in_the_database(file: Path, tmp_path: Path) -> None:
    condition = Call(">", (Column("id", BIGINT), Literal(8, INT)), BOOLEAN)
    spec = spec_of(source_of(file, **PARTS), tmp_path, conditions=(condition,))
    plan = msgspec.json.decode(spec.table.read.plan, type=DatabasePlan)
    assert (plan.condition, plan.values) == ('("id" > ?)', (8,))
    assert [[row[0] for row in part] for part in rows_of(spec)] == [[], [], [9, 10]]


def test_rows_are_fetched_in_chunks(file: Path, tmp_path: Path) -> None:
    reader = ConnectedBatchReader(spec_of(source_of(file, **{"scan.fetch-size": "4"}), tmp_path))
    (task,) = reader.partitions()
    assert [batch.num_rows for batch in reader.read(task)] == [4, 4, 2]


def test_a_row_that_does_not_fit_its_columns_is_counted(file: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("INSERT INTO items VALUES ('eleven', 'odd')")
    connection.commit()
    connection.close()
    assert len(rows_of(spec_of(source_of(file), tmp_path))[0]) == 10
    (told,) = malformed_spool(tmp_path / "spool").take()
    assert (told.queue, told.queue_offset) == (QUEUE, 10)
    assert "id" in told.reason


def test_a_stream_reads_each_part_once_and_then_ends(file: Path, tmp_path: Path) -> None:
    source = source_of(file, **PARTS)
    reader = ConnectedStreamReader(spec_of(source, tmp_path, final_tick=True, queues=True))
    position, seen = reader.initialOffset(), []
    for _ in range(5):
        end = reader.latestOffset(position, reader.getDefaultReadLimit())
        if end == position:
            break
        seen.append([task.part and task.part.start for task in reader.partitions(position, end)])
        position = end
    assert seen == [[0, 1], [2], [None]]
    assert Position.from_json(position) == Position({QUEUE: 3}, ended=True, name="t")
    assert source.end() == Position({QUEUE: 3}, name="t")
    assert ends_by_itself(source.table)


@pytest.mark.parametrize(
    ("columns", "more", "name", "words"),
    [
        ((PhysicalColumn("nam", STRING),), {}, "DATABASE_TABLE", "items has no column nam. Did you mean name?"),
        (COLUMNS, {"table-name": "nowhere"}, "DATABASE_TABLE", "has no table nowhere"),
        (
            COLUMNS,
            {**PARTS, "scan.partition.column": "name"},
            "JOB_FAILED",
            "name, by which it is cut, is of type text",
        ),
        (COLUMNS, {**PARTS, "scan.partition.upper-bound": "0"}, "JOB_FAILED", "1 is above 0"),
        (COLUMNS, {"url": "jdbc:oracle:thin:@h"}, "DATABASE_URL", "no driver for oracle"),
        (COLUMNS, {"url": "jdbc:postgresql://h:x/d?password=hush"}, "DATABASE_URL", "cannot be read"),
    ],
)
def test_what_cannot_be_read_starts_no_job(
    columns: tuple[PhysicalColumn, ...], more: dict[str, str], name: str, words: str, file: Path
) -> None:
    with pytest.raises(JobError) as raised:
        source_of(file, columns, **more)
    assert raised.value.name == name
    assert words in str(raised.value)
    assert "hush" not in str(raised.value)
