"""Tables of made-up rows: kinds of values, how many rows there are, and that a row is the same at every reading."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from pyspark.sql.streaming.datasource import ReadMaxRows

from millstream.streams.connectors.datagen.source import QUEUE, DatagenSource, row_count
from millstream.streams.errors import JobError
from millstream.streams.jobs.outputs import ends_by_itself
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BOOLEAN, DOUBLE, INT, STRING, DataType, TypeKind
from millstream.streams.spark.source.connected import ConnectedSource, ConnectedSpec, ConnectedStreamReader
from millstream.streams.spark.source.position import Position
from table_reads import rows_of_tasks, spec_of_table

BASE_MS = 1_767_225_600_000
MOMENT = DataType(TypeKind.TIMESTAMP, precision=3)
PRICE = DataType(TypeKind.DECIMAL, precision=8, scale=2)

COLUMNS = {
    "id": INT, "n": INT, "x": DOUBLE, "word": STRING, "varied": STRING, "flag": BOOLEAN, "price": PRICE, "ts": MOMENT,
    "never": STRING,
}  # fmt: skip
OPTIONS = {
    "rows-per-second": "1000",
    **{"fields.id.kind": "sequence", "fields.id.start": "5"},
    **{
        "fields.n.min": "-3",
        "fields.n.max": "3",
        "fields.x.min": "0",
        "fields.x.max": "1",
        "fields.x.null-rate": "0.5",
    },
    **{"fields.word.length": "7", "fields.varied.length": "3", "fields.varied.var-len": "true"},
    **{"fields.price.min": "1", "fields.price.max": "2", "fields.ts.max-past": "1 s", "fields.never.null-rate": "1.0"},
}


def table_of(options: dict[str, str], **columns: DataType) -> Table:
    physical = tuple(PhysicalColumn(name, kind) for name, kind in columns.items())
    return Table("t", physical, {"connector": "datagen", **options})


def spec_of(directory: Path, *names: str, rows: int = 0, final_tick: bool = False) -> ConnectedSpec:
    options = {**OPTIONS, **({"number-of-rows": str(rows)} if rows else {})}
    columns = {name: kind for name, kind in COLUMNS.items() if not names or name in names}
    start = Position({QUEUE: 0}, cut_ms=BASE_MS)
    return spec_of_table(table_of(options, **COLUMNS), directory, columns, start=start, final_tick=final_tick)


def rows_of(spec: ConnectedSpec, start: int, end: int) -> list[dict[str, Any]]:
    reader = ConnectedStreamReader(spec)
    return rows_of_tasks(
        reader, reader.partitions(Position({QUEUE: start}).to_json(), Position({QUEUE: end}).to_json())
    )


def test_values_are_of_their_kinds_and_within_their_bounds(tmp_path: Path) -> None:
    rows = rows_of(spec_of(tmp_path), 0, 3_000)
    assert [row["id"] for row in rows] == list(range(5, 3_005))
    assert {row["n"] for row in rows} == set(range(-3, 4))
    missing = sum(row["x"] is None for row in rows)
    assert 1_300 < missing < 1_700
    assert all(0 <= row["x"] < 1 for row in rows if row["x"] is not None)
    assert all(len(row["word"]) == 7 and int(row["word"], 16) >= 0 for row in rows)
    assert {len(row["varied"]) for row in rows} == {1, 2, 3}
    assert {row["flag"] for row in rows} == {True, False}
    assert all(1 <= row["price"] <= 2 and row["price"].as_tuple().exponent == -2 for row in rows)
    first = datetime.datetime.fromtimestamp(BASE_MS / 1000, datetime.UTC)
    lags = [first + datetime.timedelta(milliseconds=number) - row["ts"] for number, row in enumerate(rows)]
    assert all(datetime.timedelta(0) <= lag <= datetime.timedelta(seconds=1) for lag in lags)
    assert {row["never"] for row in rows} == {None}


def test_a_row_is_the_same_wherever_a_reading_begins_and_whatever_columns_it_has(tmp_path: Path) -> None:
    whole = rows_of(spec_of(tmp_path), 0, 2_500)
    assert rows_of(spec_of(tmp_path), 1_234, 2_111) == whole[1_234:2_111]
    alone = rows_of(spec_of(tmp_path, "word"), 990, 1_010)
    assert [row["word"] for row in alone] == [row["word"] for row in whole[990:1_010]]


def reader_of(spec: ConnectedSpec, now: list[float], monkeypatch: pytest.MonkeyPatch) -> ConnectedStreamReader:
    """A reader whose source looks at another clock."""
    monkeypatch.setattr(ConnectedSpec, "open_source", lambda spec: DatagenSource(spec.table, lambda: now[0]))
    return ConnectedStreamReader(spec)


def test_rows_have_their_turn_by_the_clock_and_end_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [10.0]
    reader = reader_of(spec_of(tmp_path, rows=2_500), now, monkeypatch)
    offset = reader.initialOffset()
    assert reader.latestOffset(offset, ReadMaxRows(10_000)) == offset
    now[0] = 11.5
    offset = reader.latestOffset(offset, ReadMaxRows(10_000))
    assert offset["queues"] == {QUEUE: 1_500}
    now[0] = 99.0
    assert reader.latestOffset(offset, ReadMaxRows(600))["queues"] == {QUEUE: 2_100}
    assert reader.latestOffset(offset, ReadMaxRows(10_000))["queues"] == {QUEUE: 2_500}


def test_a_bounded_run_waits_for_no_clock_and_sends_its_tick_behind_the_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(spec_of(tmp_path, rows=10, final_tick=True), [0.0], monkeypatch)
    reader.prepareForTriggerAvailableNow()
    last = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    assert last["queues"] == {QUEUE: 10}
    assert reader.latestOffset(last, ReadMaxRows(100))["ended"] is True
    with pytest.raises(JobError, match="no end"):
        ConnectedStreamReader(spec_of(tmp_path)).prepareForTriggerAvailableNow()


def test_a_table_without_columns_to_read_has_its_rows_all_the_same(tmp_path: Path) -> None:
    table = table_of({"number-of-rows": "7"}, a=INT)
    spec = spec_of_table(table, tmp_path, {}, batch=True)
    assert len(rows_of(spec, 0, 7)) == 7


def test_a_table_ends_with_its_number_of_rows_or_its_shortest_sequence() -> None:
    sequence = {"fields.a.kind": "sequence", "fields.a.start": "10", "fields.a.end": "14"}
    assert row_count(sequence, ["a"]) == 5
    assert row_count({**sequence, "number-of-rows": "3"}, ["a"]) == 3
    assert row_count({}, ["a"]) == 0
    assert [ends_by_itself(table_of(options, a=INT)) for options in (sequence, {})] == [True, False]


def test_a_column_that_cannot_be_made_up_is_refused_by_name() -> None:
    with pytest.raises(JobError, match="The column a of t is of type ARRAY"):
        ConnectedSource(table_of({}, a=DataType(TypeKind.ARRAY, elements=(INT,))), "n:1", 0)
