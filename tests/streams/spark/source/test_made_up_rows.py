"""Tables of made-up rows: kinds of values, how many rows there are, and that a row is the same at every reading."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from pyspark.sql.streaming.datasource import ReadMaxRows

from millstream.streams.errors import JobError
from millstream.streams.jobs.datagen_source import DatagenSource, row_count
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.sources import ends_by_itself
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BOOLEAN, DOUBLE, INT, STRING, DataType, TypeKind
from millstream.streams.spark.source.datagen.spec import DatagenSpec, MadeColumn
from millstream.streams.spark.source.datagen.values import columns_maker
from millstream.streams.spark.source.made_rows import MadeStreamReader
from millstream.streams.spark.source.position import Position

BASE_MS = 1_767_225_600_000
MOMENT = DataType(TypeKind.TIMESTAMP, precision=3)
PRICE = DataType(TypeKind.DECIMAL, precision=8, scale=2)

COLUMNS = (
    MadeColumn("id", INT, is_sequence=True, first=5),
    MadeColumn("n", INT, least=-3, greatest=3),
    MadeColumn("x", DOUBLE, least=0, greatest=1, null_rate=0.5),
    MadeColumn("word", STRING, length=7),
    MadeColumn("varied", STRING, length=3, varies=True),
    MadeColumn("flag", BOOLEAN),
    MadeColumn("price", PRICE, least=1, greatest=2),
    MadeColumn("ts", MOMENT, max_past_ms=1_000),
    MadeColumn("never", STRING, null_rate=1.0),
)


def spec_of(**more: Any) -> DatagenSpec:
    given = {"columns": COLUMNS, "numbers": tuple(range(len(COLUMNS))), "rows_per_s": 1_000, **more}
    spec = DatagenSpec("t", base_time_ms=BASE_MS, start=Position({"datagen/0": 0}), **given)
    return DatagenSpec.decode(spec.encode())


def rows_of(spec: DatagenSpec, start: int, end: int) -> list[dict[str, Any]]:
    reader = MadeStreamReader(spec, columns_maker)
    parts = reader.partitions(Position({"datagen/0": start}).to_json(), Position({"datagen/0": end}).to_json())
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_values_are_of_their_kinds_and_within_their_bounds() -> None:
    rows = rows_of(spec_of(), 0, 3_000)
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


def test_a_row_is_the_same_wherever_a_reading_begins_and_whatever_columns_it_has() -> None:
    whole = rows_of(spec_of(), 0, 2_500)
    assert rows_of(spec_of(), 1_234, 2_111) == whole[1_234:2_111]
    alone = rows_of(spec_of(columns=COLUMNS[3:4], numbers=(3,)), 990, 1_010)
    assert [row["word"] for row in alone] == [row["word"] for row in whole[990:1_010]]


def test_rows_have_their_turn_by_the_clock_and_end_with_their_number() -> None:
    now = [10.0]
    reader = MadeStreamReader(spec_of(rows=2_500), columns_maker, lambda: now[0])
    offset = reader.initialOffset()
    assert reader.latestOffset(offset, ReadMaxRows(10_000)) == offset
    now[0] = 11.5
    offset = reader.latestOffset(offset, ReadMaxRows(10_000))
    assert offset["queues"] == {"datagen/0": 1_500}
    now[0] = 99.0
    assert reader.latestOffset(offset, ReadMaxRows(600))["queues"] == {"datagen/0": 2_100}
    assert reader.latestOffset(offset, ReadMaxRows(10_000))["queues"] == {"datagen/0": 2_500}


def test_a_bounded_run_waits_for_no_clock_and_sends_its_tick_behind_the_last_row() -> None:
    reader = MadeStreamReader(spec_of(rows=10, final_tick=True), columns_maker, lambda: 0.0)
    reader.prepareForTriggerAvailableNow()
    last = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    assert last["queues"] == {"datagen/0": 10}
    assert reader.latestOffset(last, ReadMaxRows(100))["ended"] is True
    with pytest.raises(JobError, match="no end"):
        MadeStreamReader(spec_of(), columns_maker).prepareForTriggerAvailableNow()


def table_of(options: dict[str, str], **columns: DataType) -> Table:
    physical = tuple(PhysicalColumn(name, kind) for name, kind in columns.items())
    return Table("t", physical, {"connector": "datagen", **options})


def test_a_table_ends_with_its_number_of_rows_or_its_shortest_sequence() -> None:
    sequence = {"fields.a.kind": "sequence", "fields.a.start": "10", "fields.a.end": "14"}
    assert row_count(table_of(sequence, a=INT)) == 5
    assert row_count(table_of({**sequence, "number-of-rows": "3"}, a=INT)) == 3
    assert row_count(table_of({}, a=INT)) == 0
    assert [ends_by_itself(table_of(options, a=INT)) for options in (sequence, {})] == [True, False]


def test_a_column_that_cannot_be_made_up_is_refused_by_name() -> None:
    with pytest.raises(JobError, match="The column a of t is of type ARRAY"):
        DatagenSource(table_of({}, a=DataType(TypeKind.ARRAY, elements=(INT,))), JobSettings.of({}, "n:1"))
