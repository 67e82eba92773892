"""Dimension tables from files and databases: what is loaded, when it is loaded again, and what a failure leaves."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.dimension.directory import dimension_directory
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.dimension.versions import ReloadRequest, VersionStore
from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING
from millstream.streams.spark.lookups.job_tables import RETRY_S, START_FRESH_S, JobTables, TableReloads
from millstream.streams.spark.lookups.loads import TableLoad
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.row_conditions import push_conditions

COLUMNS = (PhysicalColumn("id", BIGINT), PhysicalColumn("kind", INT), PhysicalColumn("name", STRING))
ROWS = [(1, 1, "one"), (2, 1, "two"), (2, None, "zwei"), (3, 2, None), (None, 2, "none")]
KEY = IndexKey.equal("id")


def load_of(options: dict[str, str], *, filters: tuple[Call, ...] = (), key: IndexKey | None = KEY) -> TableLoad:
    spec = LookupSpec.of(Table("things", COLUMNS, {}), options, ["id", "name"], ["id"])
    return TableLoad(spec, ("name",), key, filters)


def sqlite_of(directory: Path, rows: Sequence[tuple[Any, ...]] = ROWS) -> dict[str, str]:
    file = directory / "things.db"
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE things (id INTEGER, kind INTEGER, name TEXT)")
        connection.executemany("INSERT INTO things VALUES (?, ?, ?)", rows)
    return {"connector": "jdbc", "url": f"jdbc:sqlite:{file}", "table-name": "things", "lookup.max-retries": "0"}


def csv_of(directory: Path, rows: Sequence[tuple[Any, ...]] = ROWS) -> dict[str, str]:
    lines = (",".join("~" if value is None else str(value) for value in row) for row in rows)
    (directory / "things.csv").write_text("\n".join(lines) + "\n")
    return {"connector": "filesystem", "path": str(directory / "things.csv"), "format": "csv", "csv.null-literal": "~"}


def json_of(directory: Path, rows: Sequence[tuple[Any, ...]] = ROWS) -> dict[str, str]:
    names = [column.name for column in COLUMNS]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    (directory / "things.json").write_text("\n".join(json.dumps(row) for row in table.to_pylist()))
    return {"connector": "filesystem", "path": str(directory / "things.json"), "format": "json"}


def parquet_of(directory: Path, rows: Sequence[tuple[Any, ...]] = ROWS) -> dict[str, str]:
    names = [column.name for column in COLUMNS]
    schema = pa.schema([("id", pa.int64()), ("kind", pa.int32()), ("name", pa.string())])
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)
    pyarrow.parquet.write_table(table, directory / "things.parquet")
    return {"connector": "filesystem", "path": str(directory / "things.parquet"), "format": "parquet"}


SOURCES = {"sqlite": sqlite_of, "csv": csv_of, "json": json_of, "parquet": parquet_of}


def compared(function: str, name: str, *values: Any) -> Call:
    of = {column.name: column.type for column in COLUMNS}
    constants: tuple[Expression, ...] = tuple(Literal(value, of[name].as_nullable(False)) for value in values)
    return Call(function, (Column(name, of[name]), *constants), BOOLEAN)


def found(load: TableLoad, directory: Path, *ids: int | None) -> list[tuple[int | None, str | None]]:
    """The names that ids find in what is loaded."""
    directory.mkdir()
    load.fill(directory, [KEY])
    table = DimensionTable.open(directory)
    pairs = table.find(KEY, [pa.array(ids, pa.int64())])
    names = table.take(pairs.row).column("name").to_pylist()
    return sorted(((ids[probe], name) for probe, name in zip(pairs.probe, names, strict=True)), key=repr)


@pytest.mark.parametrize("source", SOURCES)
def test_rows_of_each_source_are_found_by_their_keys(source: str, tmp_path: Path) -> None:
    load = load_of(SOURCES[source](tmp_path))
    assert found(load, tmp_path / "table", 2, 1, 7, None, 3) == [(1, "one"), (2, "two"), (2, "zwei"), (3, None)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        ([compared("=", "kind", 1)], [(1, "one"), (2, "two")]),
        ([compared("<>", "name", "two"), compared(">", "id", 1)], [(2, "zwei")]),
        ([compared("IN", "name", "zwei", "one")], [(1, "one"), (2, "zwei")]),
        ([compared("IS NULL", "kind")], [(2, "zwei")]),
        ([compared("IS NOT NULL", "kind"), compared("<=", "kind", 1)], [(1, "one"), (2, "two")]),
    ],
)
def test_only_rows_that_fit_are_loaded(source: str, filters: list[Call], rows: list[Any], tmp_path: Path) -> None:
    load = load_of(SOURCES[source](tmp_path), filters=tuple(filters))
    assert found(load, tmp_path / "table", 1, 2, 3) == rows


def test_a_condition_that_compares_a_column_with_a_constant_is_pushed_and_no_other() -> None:
    pushable = [compared("<", "id", 3), compared("IS NULL", "kind"), compared("IN", "name", "a", "b")]
    turned = Call(">=", (Literal(5, BIGINT), Column("id", BIGINT)), BOOLEAN)
    others = [
        Call("=", (Column("id", BIGINT), Column("n", BIGINT)), BOOLEAN),
        Call("LIKE", (Column("name", STRING), Literal("a%", STRING)), BOOLEAN),
        Call("=", (Call("UPPER", (Column("name", STRING),), STRING), Literal("A", STRING)), BOOLEAN),
        Call("=", (Column("n", BIGINT), Literal(1, BIGINT)), BOOLEAN),
        compared("=", "name", None),
    ]
    names = {"id": "key", "kind": "kind", "name": "name"}
    applied, rest = push_conditions([*pushable, *others, turned], names)
    assert [str(call) for call in applied] == ["<(key, 3)", "IS NULL(kind)", "IN(name, 'a', 'b')", "<=(key, 5)"]
    assert list(rest) == others


intervals = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=10)


@settings(deadline=None, max_examples=scaled(25))
@given(intervals=intervals, probes=st.lists(st.integers(-1, 21), max_size=10), closed=st.booleans())
def test_ranges_of_a_file_hold_what_a_loop_says(
    intervals: list[tuple[int, int]], probes: list[int], closed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("ranges")
    lines = "".join(f"{start},{end},{place}\n" for place, (start, end) in enumerate(intervals))
    (directory / "r.csv").write_text(lines)
    columns = (PhysicalColumn("low", BIGINT), PhysicalColumn("high", BIGINT), PhysicalColumn("name", STRING))
    options = {"connector": "filesystem", "path": str(directory / "r.csv"), "format": "csv"}
    spec = LookupSpec.of(Table("ranges", columns, {}), options, ["low", "high", "name"], [])
    key = IndexKey(IndexKind.RANGE, ("low", "high"), closed)
    (directory / "table").mkdir()
    TableLoad(spec, ("name",), key).fill(directory / "table", [key])
    table = DimensionTable.open(directory / "table")
    pairs = table.find(key, [pa.array(probes, pa.int64())])
    names = table.take(pairs.row).column("name").to_pylist()
    assert sorted(zip(pairs.probe.tolist(), names, strict=True)) == sorted(
        (probe, str(place))
        for probe, value in enumerate(probes)
        for place, (start, end) in enumerate(intervals)
        if start <= value and (value <= end if closed else value < end)
    )


def test_tables_of_one_content_share_versions_and_others_do_not(tmp_path: Path) -> None:
    options = sqlite_of(tmp_path)
    load = load_of(options)
    again = {**options, "password": "secret", "lookup.full-cache.periodic-reload.interval": "5 s"}
    assert load_of(again).identity == load.identity
    assert load_of({**options, "table-name": "others"}).identity != load.identity
    assert load_of(options, filters=(compared("=", "kind", 1),)).identity != load.identity
    # The column id is not kept: an index of another column cannot be made of what is there.
    assert load_of(options, key=IndexKey.equal("id", "name")).identity != load.identity


def test_no_password_is_written_down(tmp_path: Path) -> None:
    options = {**sqlite_of(tmp_path), "password": "s3cret"}
    options["url"] += "?password=s3cret"
    JobTables(tmp_path / "pins", "job", root=tmp_path / "dimensions").use(load_of(options))
    files = [path for path in (tmp_path / "dimensions").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"s3cret" in path.read_bytes() or "s3cret" in str(path)]


class Clock:
    """Milliseconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


def reloads_of(directory: Path, options: dict[str, str], clock: Clock) -> TableReloads:
    reloads = TableReloads(load_of(options), VersionStore(directory / "store", clock_ms=clock), clock_ms=clock)
    reloads.first()
    return reloads


def version(reloads: TableReloads) -> int:
    head = reloads.store.current()
    return 0 if head is None else head.version


def test_a_table_with_an_interval_is_loaded_when_it_is_over(tmp_path: Path) -> None:
    clock = Clock()
    options = {**sqlite_of(tmp_path), "lookup.full-cache.periodic-reload.interval": "30 s"}
    reloads = reloads_of(tmp_path, options, clock)
    clock.pass_s(29)
    assert not reloads.look()
    clock.pass_s(1)
    assert reloads.look()
    assert version(reloads) == 2


def test_a_table_with_a_time_of_day_is_loaded_on_each_day_at_it(tmp_path: Path) -> None:
    clock = Clock()
    # 2023-11-14 22:13:20 UTC.
    options = {
        **sqlite_of(tmp_path),
        "lookup.full-cache.reload-strategy": "TIMED",
        "lookup.full-cache.timed-reload.iso-time": "22:14Z",
    }
    reloads = reloads_of(tmp_path, options, clock)
    clock.pass_s(39)
    assert not reloads.look()
    clock.pass_s(1)
    assert reloads.look()
    assert not reloads.look()
    clock.pass_s(86_400)
    assert reloads.look()


def test_files_are_loaded_again_when_they_change(tmp_path: Path) -> None:
    clock = Clock()
    reloads = reloads_of(tmp_path, csv_of(tmp_path), clock)
    clock.pass_s(1_000_000)
    assert not reloads.look()
    csv_of(tmp_path, [(5, 5, "five")])
    os.utime(tmp_path / "things.csv", ns=(1, 1))
    assert reloads.look()
    head = reloads.store.current()
    assert head is not None
    assert head.rows == 1


def test_a_wish_is_granted_once(tmp_path: Path) -> None:
    clock = Clock()
    reloads = reloads_of(tmp_path, sqlite_of(tmp_path), clock)
    clock.pass_s(5)
    assert not reloads.look()
    ReloadRequest(reloads.store.directory).request(clock())
    clock.pass_s(1)
    assert reloads.look()
    assert not reloads.look()


def test_a_failed_load_keeps_the_old_version_says_so_and_is_tried_again_later(tmp_path: Path) -> None:
    clock = Clock()
    options = {**sqlite_of(tmp_path), "lookup.full-cache.periodic-reload.interval": "30 s"}
    reloads = reloads_of(tmp_path, options, clock)
    assert reloads.trouble() is None
    (tmp_path / "things.db").rename(tmp_path / "away.db")
    clock.pass_s(30)
    assert not reloads.look()
    assert version(reloads) == 1
    said = reloads.trouble()
    assert said is not None
    assert said.startswith("The table things is not loaded again; version 1 of 2023-11-14 22:13:20 UTC goes on: ")
    assert "things.db" in said
    assert "\n" not in said
    (tmp_path / "away.db").rename(tmp_path / "things.db")
    clock.pass_s(RETRY_S - 1)
    assert not reloads.look()
    clock.pass_s(1)
    assert reloads.look()
    assert reloads.trouble() is None
    assert version(reloads) == 2


def test_a_job_whose_table_was_never_loaded_does_not_begin(tmp_path: Path) -> None:
    options = sqlite_of(tmp_path)
    (tmp_path / "things.db").unlink()
    with pytest.raises(JobError, match=r"The table things cannot be loaded: .*things\.db"):
        JobTables(tmp_path / "pins", "job", root=tmp_path / "store").use(load_of(options))


def test_a_job_begins_with_a_version_that_another_one_has_just_loaded(tmp_path: Path) -> None:
    clock = Clock()
    options = sqlite_of(tmp_path)
    reloads_of(tmp_path, options, clock)
    clock.pass_s(START_FRESH_S - 1)
    assert version(reloads_of(tmp_path, options, clock)) == 1
    clock.pass_s(1)
    assert version(reloads_of(tmp_path, options, clock)) == 2


def test_a_missing_column_is_told_with_its_name(tmp_path: Path) -> None:
    options = sqlite_of(tmp_path)
    with closing(sqlite3.connect(tmp_path / "things.db")) as connection, connection:
        connection.execute("ALTER TABLE things RENAME COLUMN name TO names")
    with pytest.raises(JobError, match=r"The table things .* no column name\. Did you mean names\?"):
        load_of(options).fill(tmp_path, [KEY])


def test_two_jobs_with_other_keys_share_one_table_with_both_indexes(tmp_path: Path) -> None:
    options = sqlite_of(tmp_path)
    spec = LookupSpec.of(Table("things", COLUMNS, {}), options, ["id", "name"], ["id"])
    by_id, by_name = IndexKey.equal("id"), IndexKey.equal("name")
    first, second = (TableLoad(spec, ("id", "name"), key) for key in (by_id, by_name))
    root = tmp_path / "store"
    uses = [
        JobTables(tmp_path / str(place), f"job{place}", root=root).use(load)
        for place, load in enumerate((first, second))
    ]
    assert uses[0].store == uses[1].store
    reloads = TableReloads(first, VersionStore(Path(uses[0].store)))
    ReloadRequest(reloads.store.directory).request(2**53)
    assert reloads.look()
    table = DimensionTable.open(Path(uses[0].store) / "versions" / "2")
    assert set(table.indexes) == {by_id, by_name}
    assert np.array_equal(table.find(by_name, [pa.array(["two"])]).probe, [0])


def test_the_directory_is_what_the_environment_says() -> None:
    assert dimension_directory({"MILLSTREAM_DIMENSIONS": "/data/d"}) == Path("/data/d")
    assert dimension_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/millstream/dimensions")


def test_whole_numbers_find_each_other_whatever_their_width(tmp_path: Path) -> None:
    by_kind = IndexKey.equal("kind")
    spec = LookupSpec.of(Table("things", COLUMNS, {}), sqlite_of(tmp_path), ["kind", "name"], ["kind"])
    (tmp_path / "table").mkdir()
    TableLoad(spec, ("name",), by_kind).fill(tmp_path / "table", [by_kind])
    table = DimensionTable.open(tmp_path / "table")
    pairs = table.find(by_kind, [pa.array([1, 2**40, 2**32 + 1, None], pa.int64())])
    assert sorted(table.take(pairs.row).column("name").to_pylist()) == ["one", "two"]
    assert pairs.probe.tolist() == [0, 0]
