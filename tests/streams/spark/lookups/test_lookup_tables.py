"""Tables to look up: what files and databases answer, how long answers are kept, and what is tried again."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from millstream.model.backoff import Backoff
from millstream.streams.connectors.jdbc.databases.failure import FIRST_WAIT_S, LONGEST_WAIT_S
from millstream.streams.connectors.jdbc.lookup import KEYS_PER_QUERY, DatabaseTable
from millstream.streams.errors import JobError
from millstream.streams.operators.operator import Row
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, STRING, DataType, TypeKind
from millstream.streams.spark.lookups.kept_table import KeptKeys, KeptLimits, MissedAgain, WholeTable
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.opening import open_table

COLUMNS = (
    PhysicalColumn("id", BIGINT),
    PhysicalColumn("name", STRING),
    PhysicalColumn("since", DataType(TypeKind.TIMESTAMP, precision=3)),
    PhysicalColumn("price", DataType(TypeKind.DECIMAL, precision=10, scale=2)),
    PhysicalColumn("open", BOOLEAN),
)
NAMES = [column.name for column in COLUMNS]
FULL_WAITS = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S, random=lambda: 0.0)
NOON_US = 1_772_366_400_000_000
"""2026-03-01 12:00:00."""

GIVEN = [
    (1, "one", "2026-03-01 12:00:00", "1.50", True),
    (2, "two", None, "2.00", False),
    (2, "zwei", "2026-03-01 12:00:01", None, None),
    (None, "nobody", None, None, None),
]
FOUND = {
    (1,): [(1, "one", NOON_US, Decimal("1.50"), True)],
    (2,): [(2, "two", None, Decimal("2.00"), False), (2, "zwei", NOON_US + 1_000_000, None, None)],
}


def spec_of(options: Mapping[str, str], *names: str, key: str = "id", partitions: tuple[str, ...] = ()) -> LookupSpec:
    table = Table("products", COLUMNS, dict(options), partition_keys=partitions)
    return LookupSpec.of(table, options, names or NAMES, [key])


def write_json(file: Path) -> None:
    lines = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in GIVEN]
    file.write_text("\n".join([*lines, "no json", '{"id": "x"}', ""]))


def write_csv(file: Path) -> None:
    rows = [["" if value is None else str(value) for value in row] for row in GIVEN]
    file.write_text("\n".join([*(",".join(row) for row in rows), "x,not a number,,,", "too,few"]))


def write_parquet(file: Path) -> None:
    """All columns but the last one."""
    columns = dict(zip(NAMES, zip(*GIVEN, strict=True), strict=True))
    table = pa.table({name: pa.array(list(values)) for name, values in columns.items() if name != "open"})
    pa.parquet.write_table(table.set_column(2, "since", table.column("since").cast(pa.timestamp("us"))), file)


@pytest.mark.parametrize("file_format", ["json", "csv", "parquet"])
def test_files_answer_with_the_rows_of_a_key(file_format: str, tmp_path: Path) -> None:
    {"json": write_json, "csv": write_csv, "parquet": write_parquet}[file_format](tmp_path / f"part.{file_format}")
    (tmp_path / ".unfinished").write_text("nothing that could be read")
    table = open_table(spec_of({"connector": "filesystem", "path": str(tmp_path), "format": file_format}))
    wanted = FOUND
    if file_format == "parquet":
        # A column that a file does not have is NULL.
        wanted = {key: [(*row[:4], None) for row in rows] for key, rows in FOUND.items()}
    assert table.find([(1,), (2,), (3,)]) == wanted


def test_directories_give_the_columns_that_their_names_say(tmp_path: Path) -> None:
    for name, number in (("a", 1), ("__DEFAULT_PARTITION__", 2)):
        (tmp_path / f"name={name}").mkdir()
        (tmp_path / f"name={name}" / "part").write_text(f"{number},,,\n")
    options = {"connector": "filesystem", "path": tmp_path.as_uri(), "format": "csv"}
    table = open_table(spec_of(options, "name", "id", partitions=("name",)))
    assert table.find([(1,), (2,)]) == {(1,): [("a", 1)], (2,): [(None, 2)]}


def test_a_changed_table_is_read_again_and_an_unchanged_one_is_not() -> None:
    now_s = [0.0]
    version = [1]
    loads: list[int] = []

    def load() -> Sequence[Row]:
        loads.append(version[0])
        return [(1, f"v{version[0]}")]

    table = WholeTable(spec_of({}, "id", "name"), load, lambda: version[0], 10.0, clock=lambda: now_s[0])

    def found(at_s: float) -> object:
        now_s[0] = at_s
        return table.find([(1,)])[(1,)][0][1]

    assert found(0) == "v1"
    version[0] = 2
    assert found(9) == "v1"
    assert found(10) == "v2"
    assert found(20) == "v2"
    assert loads == [1, 2]


def test_a_file_that_changes_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "products.csv"
    file.write_text("1,one,,,\n")
    options = {"connector": "filesystem", "path": str(file), "format": "csv", "lookup.cache.ttl": "0 s"}
    table = open_table(spec_of(options, "name", "id"))
    assert table.find([(1,)]) == {(1,): [("one", 1)]}
    file.write_text("1,uno,,,\n")
    os.utime(file, ns=(1, 1))
    assert table.find([(1,)]) == {(1,): [("uno", 1)]}


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    table = open_table(spec_of({"connector": "filesystem", "path": str(tmp_path), "format": "parquet"}))
    with pytest.raises(JobError, match=r"products cannot be looked up: .*broken\.parquet cannot be read"):
        table.find([(1,)])


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute('CREATE TABLE "my ""products" (id INTEGER, name TEXT, since TEXT, price NUMERIC, open INTEGER)')
    connection.executemany('INSERT INTO "my ""products" VALUES (?, ?, ?, ?, ?)', GIVEN)
    connection.commit()
    connection.close()
    return path


def options_of(path: Path, **more: str) -> dict[str, str]:
    return {"connector": "jdbc", "url": f"jdbc:sqlite:{path}", "table-name": 'my "products', **more}


@pytest.mark.parametrize("cache", ["NONE", "PARTIAL", "FULL"])
def test_a_database_answers_with_the_rows_of_a_key(cache: str, database: Path) -> None:
    table = open_table(spec_of(options_of(database, **{"lookup.cache": cache})))
    assert table.find([(1,), (2,), (3,)]) == FOUND
    assert table.find([(1,)]) == {(1,): FOUND[(1,)]}


@pytest.mark.parametrize(
    ("key", "value"), [("since", NOON_US), ("name", "one"), ("price", Decimal("1.50")), ("open", True)]
)
def test_a_database_is_asked_by_keys_of_every_kind(key: str, value: object, database: Path) -> None:
    table = open_table(spec_of(options_of(database), "id", key, key=key))
    assert table.find([(value,)]) == {(value,): [(1, value)]}


def test_many_keys_are_asked_in_several_queries(database: Path) -> None:
    keys = [(number,) for number in range(KEYS_PER_QUERY * 2 + 2, -1, -1)]
    assert open_table(spec_of(options_of(database), "id")).find(keys) == {(1,): [(1,)], (2,): [(2,), (2,)]}


def test_a_database_that_comes_back_is_asked_again(tmp_path: Path, database: Path) -> None:
    away = database.rename(tmp_path / "away.db")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            away.rename(database)

    table = DatabaseTable(spec_of(options_of(database), "id"), backoff=FULL_WAITS, sleep=sleep)
    assert table.find([(1,)]) == {(1,): [(1,)]}
    assert waits == [0.1, 0.2]


def test_a_database_that_stays_away_is_named_in_one_line(tmp_path: Path) -> None:
    waits: list[float] = []
    options = options_of(tmp_path / "none.db", **{"lookup.max-retries": "2"})
    table = DatabaseTable(spec_of(options, "id"), backoff=FULL_WAITS, sleep=waits.append)
    with pytest.raises(JobError, match=r"products cannot be looked up: .*unable to open"):
        table.find([(1,)])
    assert waits == [0.1, 0.2]


def test_a_database_without_a_driver_is_refused() -> None:
    spec = spec_of({"connector": "jdbc", "url": "jdbc:oracle:thin:@host", "table-name": "t"}, "id")
    with pytest.raises(JobError, match="no driver for oracle"):
        open_table(spec)


class Counted:
    """A table that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Row] = []
        self.late: set[Row] = set()

    def find(self, keys: Collection[Row]) -> dict[Row, Sequence[Row]]:
        self.asked += keys
        return {key: [key] for key in keys if key != ("none",) and key not in self.late}


def test_kept_answers_end_by_age_by_disuse_and_by_their_number() -> None:
    now_s = [0.0]
    table = Counted()
    kept = KeptKeys(table, KeptLimits(2, written_s=10, used_s=4), clock=lambda: now_s[0])

    def is_asked(key: str, at_s: float) -> bool:
        now_s[0] = at_s
        before = len(table.asked)
        kept.find([(key,)])
        return len(table.asked) > before

    assert [is_asked("a", at_s) for at_s in (0, 3, 6, 9, 10)] == [True, False, False, False, True]
    assert [is_asked("a", at_s) for at_s in (13, 17)] == [False, True]
    assert [is_asked("none", 17), is_asked("none", 18)] == [True, False]
    assert [is_asked("b", 18), is_asked("none", 18), is_asked("a", 18)] == [True, False, True]
    assert kept.find([("none",), ("a",)]) == {("a",): [("a",)]}


def test_rows_that_come_late_are_waited_for() -> None:
    waits: list[float] = []
    table = Counted()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            table.late.clear()

    table.late.add(("late",))
    patient = MissedAgain(table, 3, 0.5, sleep=sleep)
    assert patient.find([("a",), ("late",)]) == {("a",): [("a",)], ("late",): [("late",)]}
    assert waits == [0.5, 0.5]
    assert patient.find([("none",)]) == {}
    assert waits == [0.5] * 5
    assert table.asked.count(("a",)) == 1


def test_a_hint_makes_a_table_patient(tmp_path: Path) -> None:
    spec = spec_of({"connector": "filesystem", "path": str(tmp_path)})
    hints = (("retry-predicate", "lookup_miss"), ("fixed-delay", "10 s"), ("max-attempts", "2"))
    assert isinstance(open_table(replace(spec, hints=hints)), MissedAgain)
    assert isinstance(open_table(spec), WholeTable)


def test_missing_keys_are_asked_again_where_they_are_not_kept() -> None:
    table = Counted()
    kept = KeptKeys(table, KeptLimits(10, missing=False))
    for _ in range(2):
        assert kept.find([("none",)]) == {}
    assert table.asked == [("none",), ("none",)]
