"""Dimension tables from files of SQLite and from real servers: what is loaded, and what a server that fails leaves."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from database_servers import PASSWORD, free_port
from millstream.streams.connectors.jdbc import lookup as database_lookup
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.dimension.versions import ReloadRequest, VersionStore
from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING, DataType, TypeKind
from millstream.streams.spark.lookups.job_tables import JobTables, TableReloads
from millstream.streams.spark.lookups.loads import TableLoad
from millstream.streams.spark.lookups.lookup_table import LookupSpec

PRICE = DataType(TypeKind.DECIMAL, precision=10, scale=2)
TIME = DataType(TypeKind.TIMESTAMP, precision=3)
COLUMNS = (
    PhysicalColumn("id", BIGINT), PhysicalColumn("name", STRING), PhysicalColumn("level", INT),
    PhysicalColumn("price", PRICE), PhysicalColumn("since", TIME), PhysicalColumn("low", BIGINT),
    PhysicalColumn("high", BIGINT),
)  # fmt: skip
DECLARED = (
    "id BIGINT, name VARCHAR(40), level INTEGER, price DECIMAL(10, 2), since {time}, low BIGINT, high BIGINT"
)  # fmt: skip
NOON = datetime.datetime(2026, 5, 4, 12, 0, 0, 250_000)
ROWS: list[tuple[Any, ...]] = [
    (1, "one", 1, "1.50", NOON, 0, 10),
    (2, "Two", 2, "-99999999.99", NOON, 5, 7),
    (2, "zwei", None, None, None, None, 9),
    (2**62, "", 3, "0.00", NOON, 20, 30),
    (None, "ä€😀", 3, "2.00", NOON, 0, 0),
    (4, None, 2, "3.25", NOON, 6, 6),
]


def table_of(shop: Any, rows: Sequence[tuple[Any, ...]] = ROWS) -> str:
    time = {"mysql": "DATETIME(3)", "postgresql": "TIMESTAMP(3)", "sqlite": "TEXT"}[shop.kind]
    name: str = shop.make(DECLARED.replace("{time}", time))
    add(shop, name, rows)
    return name


def add(shop: Any, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
    marks = ", ".join([shop.database.mark] * len(COLUMNS))
    for row in rows:
        values = [
            str(value) if shop.kind == "sqlite" and isinstance(value, datetime.datetime) else value for value in row
        ]
        shop.connection.run(f"INSERT INTO {shop.database.table(name)} VALUES ({marks})", values)


def load_of(shop: Any, name: str, *filters: Call, key: IndexKey, **options: str) -> TableLoad:
    given = {**shop.options, "connector": "jdbc", "table-name": name, "lookup.max-retries": "0", **options}
    names = [column.name for column in COLUMNS]
    return TableLoad(LookupSpec.of(Table("things", COLUMNS, {}), given, names, []), tuple(names), key, filters)


def found(load: TableLoad, directory: Path, probes: pa.Array) -> list[tuple[Any, Any]]:
    """Each probe with the names of the rows that it finds in what is loaded."""
    assert load.key is not None
    directory.mkdir()
    load.fill(directory, [load.key])
    table = DimensionTable.open(directory, check=True)
    pairs = table.find(load.key, [probes])
    names = table.take(pairs.row, ["name"]).column(0).to_pylist()
    return sorted(((probes[probe].as_py(), name) for probe, name in zip(pairs.probe, names, strict=True)), key=repr)


def test_rows_of_a_database_are_found_with_all_their_values(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that they come in several chunks.
    monkeypatch.setattr(database_lookup, "LOADED_AT_ONCE", 4)
    by_id = IndexKey.equal("id")
    load = load_of(shop, table_of(shop), key=by_id)
    assert found(load, tmp_path / "t", pa.array([2, None, 2**62, 3, 1])) == [
        (1, "one"), (2, "Two"), (2, "zwei"), (2**62, ""),
    ]  # fmt: skip
    table = DimensionTable.open(tmp_path / "t")
    kept = [row for batch in table.scan() for row in batch.to_pylist()]
    wanted = [
        {**dict(zip(table.schema.names, row, strict=True)), "price": None if row[3] is None else Decimal(row[3])}
        for row in ROWS
    ]
    for row in kept:
        since = row["since"]
        row["since"] = None if since is None else since.replace(tzinfo=None)
    assert sorted(kept, key=repr) == sorted(wanted, key=repr)


def test_ranges_of_a_database_hold_what_stands_between_them(shop: Any, tmp_path: Path) -> None:
    load = load_of(shop, table_of(shop), key=IndexKey(IndexKind.RANGE, ("low", "high")))
    assert found(load, tmp_path / "t", pa.array([6, 30, 31, None, 0])) == [
        (0, "one"), (0, "ä€😀"), (30, ""), (6, "Two"), (6, "one"), (6, None),
    ]  # fmt: skip


def compared(function: str, name: str, *values: Any) -> Call:
    of = {column.name: column.type for column in COLUMNS}
    constants: tuple[Expression, ...] = tuple(Literal(value, of[name].as_nullable(False)) for value in values)
    return Call(function, (Column(name, of[name]), *constants), BOOLEAN)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ([compared(">=", "level", 2)], ["", "Two", "ä€😀", None]),
        ([compared("IS NULL", "level")], ["zwei"]),
        # Databases that take "two" and "Two" for equal do not make them so here.
        ([compared("=", "name", "two")], []),
        ([compared("=", "name", "Two")], ["Two"]),
        ([compared("IN", "name", "one", "ä€😀", "TWO")], ["one", "ä€😀"]),
        ([compared("<>", "name", "one"), compared("<", "id", 3)], ["Two", "zwei"]),
    ],
)
def test_only_rows_that_fit_are_loaded_of_a_database(
    shop: Any, filters: list[Call], names: list[str | None], tmp_path: Path
) -> None:
    load = load_of(shop, table_of(shop), *filters, key=IndexKey.equal("id"))
    load.fill(tmp_path / "t", [IndexKey.equal("id")])
    table = DimensionTable.open(tmp_path / "t")
    kept = [name for batch in table.scan(["name"]) for name in batch.column(0).to_pylist()]
    assert sorted(kept, key=repr) == sorted(names, key=repr)


def test_a_table_that_goes_on_in_its_database_is_another_version(shop: Any, tmp_path: Path) -> None:
    name = table_of(shop)
    load = load_of(shop, name, key=IndexKey.equal("id"))
    use = JobTables(tmp_path / "pins", "job", root=tmp_path).use(load)
    store = VersionStore(Path(use.store))
    add(shop, name, [(9, "nine", 1, "1", NOON, 1, 1)])
    ReloadRequest(store.directory).request(2**53)
    assert TableReloads(load, store).look()
    assert [head.rows for head in store.versions()] == [6, 7]
    # What failed leaves the versions that are there, and is told without the password.
    shop.connection.run(f"DROP TABLE {shop.database.table(name)}")
    reloads = TableReloads(load, store)
    assert not reloads.look()
    trouble = reloads.trouble()
    assert trouble is not None
    assert trouble.startswith("The table things is not loaded again; version 2 of ")
    assert PASSWORD not in trouble
    assert [head.rows for head in store.versions()] == [6, 7]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]


def test_a_column_that_a_database_has_not_is_told(shop: Any, tmp_path: Path) -> None:
    name = shop.make("id BIGINT, names VARCHAR(10)")
    with pytest.raises(JobError, match=r"The table things cannot be loaded: .* no column name\. Did you mean names\?"):
        load_of(shop, name, key=IndexKey.equal("id")).fill(tmp_path / "t", [IndexKey.equal("id")])


def test_a_server_that_refuses_or_is_away_is_told_without_the_password(shop: Any, tmp_path: Path) -> None:
    if shop.kind == "sqlite":
        pytest.skip("SQLite has no server")
    name, by_id = table_of(shop), IndexKey.equal("id")
    port = shop.options["url"].rpartition(":")[2].partition("/")[0]
    away = shop.options["url"].replace(port, str(free_port()))
    for options, words in (
        ({"password": "wrong-8812"}, "keeper|password|Access denied"),
        ({"url": away}, "127.0.0.1"),
        ({"table-name": "nowhere"}, "nowhere"),
    ):
        with pytest.raises(JobError, match=rf"The table things cannot be loaded: (?s:.*)({words})") as refused:
            load_of(shop, name, key=by_id, **options).fill(tmp_path / "t", [by_id])
        assert PASSWORD not in str(refused.value)
        assert "wrong-8812" not in str(refused.value)
