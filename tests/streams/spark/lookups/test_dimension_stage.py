"""Rows joined with dimension tables in whole batches: what a dict would find, in the rows' order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.dimension.builder import TableBuilder
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.plan.expressions import Call, Column, Expression
from millstream.streams.plan.types import BOOLEAN, STRING
from millstream.streams.spark.lookups import dimension_stage
from millstream.streams.spark.lookups.dimension_stage import DimensionStage, DimensionStep
from millstream.streams.spark.lookups.open_tables import TableUse

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("place", pa.string()), pa.field("name", pa.string())])
INPUT = [pa.field("product", pa.int64()), pa.field("where", pa.string()), pa.field("__keep", pa.bool_())]
OUTPUT = pa.schema(
    [*INPUT, pa.field("__found", pa.bool_()), pa.field("__id", pa.int64()), pa.field("__name", pa.string())]
)

Asked = tuple[int | None, str | None, bool]
Kept = tuple[int | None, str | None, str | None]


def table_of(directory: Path, rows: Sequence[Kept], keys: Sequence[IndexKey]) -> DimensionTable:
    builder = TableBuilder(directory, SCHEMA, keys)
    builder.add(pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA))
    builder.finish()
    return DimensionTable.open(directory)


def joined(
    table: DimensionTable,
    asked: Sequence[Asked],
    key: IndexKey | None,
    condition: Expression | None = None,
    *,
    batches: int = 1,
) -> list[tuple[Any, ...]]:
    """What comes of (product, where, asks), in as many batches."""
    places = {"id": 0, "place": 1}
    probes = () if key is None else tuple(places[name] for name in key.columns)
    step = DimensionStep(TableUse("t", "", "", "", key), probes, 2, ("id", "name"), OUTPUT)
    if condition is not None:
        step = DimensionStep(
            step.use, probes, 2, ("id", "name"), OUTPUT, condition, ("where",), (1,), ("name",), ("name",)
        )
    each = -(-len(asked) // batches) or 1
    parts = [asked[start : start + each] for start in range(0, len(asked), each)]
    given = [
        pa.RecordBatch.from_pylist([dict(zip(OUTPUT.names, row, strict=False)) for row in part], pa.schema(INPUT))
        for part in parts
    ]
    found = [row for batch in DimensionStage(step, lambda _use: table)(iter(given)) for row in batch.to_pylist()]
    return [tuple(row[name] for name in OUTPUT.names if name != "__keep") for row in found]


def expected(
    rows: Sequence[Kept], asked: Sequence[Asked], columns: Sequence[int], fits: Any = lambda _asked, _row: True
) -> list[tuple[Any, ...]]:
    """The same by loops."""
    out: list[tuple[Any, ...]] = []
    for product, where, asks in asked:
        key = [(product, where)[place] for place in columns]
        matches = [
            row
            for row in rows
            if asks and None not in key and [row[place] for place in columns] == key and fits((product, where), row)
        ]
        out += [(product, where, True, row[0], row[2]) for row in matches] or [(product, where, False, None, None)]
    return out


def check(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    """The same rows, those of each row that asked together, in the order of these; a table has its own order."""
    assert Counter(found) == Counter(wanted)
    assert [row[:2] for row in found] == [row[:2] for row in wanted]


numbers = st.one_of(st.none(), st.integers(-2, 3), st.just(2**63 - 1))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "ä", "𝄞", "b" * 300]))
tables = st.lists(st.tuples(numbers, texts, texts), max_size=12)
questions = st.lists(st.tuples(numbers, texts, st.booleans()), max_size=12)


@settings(deadline=None, max_examples=scaled(60))
@given(rows=tables, asked=questions, batches=st.integers(1, 3))
def test_rows_find_what_a_loop_finds_by_one_column(
    rows: list[Kept], asked: list[Asked], batches: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = IndexKey.equal("id")
    table = table_of(tmp_path_factory.mktemp("one"), rows, [key])
    check(joined(table, asked, key, batches=batches), expected(rows, asked, [0]))


@settings(deadline=None, max_examples=scaled(60))
@given(rows=tables, asked=questions)
def test_rows_find_what_a_loop_finds_by_two_columns(
    rows: list[Kept], asked: list[Asked], tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = IndexKey.equal("place", "id")
    table = table_of(tmp_path_factory.mktemp("two"), rows, [key])
    check(joined(table, asked, key), expected(rows, asked, [0, 1]))


@settings(deadline=None, max_examples=scaled(40))
@given(rows=tables, asked=questions)
def test_a_condition_leaves_matches_out_with_or_without_an_index(
    rows: list[Kept], asked: list[Asked], tmp_path_factory: pytest.TempPathFactory
) -> None:
    below = Call("<", (Column("where", STRING), Column("name", STRING)), BOOLEAN)
    fits = lambda mine, row: None not in (mine[1], row[2]) and mine[1] < row[2]  # noqa: E731
    key = IndexKey.equal("id")
    table = table_of(tmp_path_factory.mktemp("fits"), rows, [key])
    check(joined(table, asked, key, below), expected(rows, asked, [0], fits))
    check(joined(table, asked, None, below), expected(rows, asked, [], fits))


def test_many_matches_come_in_small_batches_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dimension_stage, "ROWS_PER_BATCH", 3)
    rows: list[Kept] = [(1, "x", str(number)) for number in range(7)]
    asked: list[Asked] = [(2, "a", True), (1, "b", True), (1, "c", False), (1, "d", True)]
    key = IndexKey.equal("id")
    check(joined(table_of(tmp_path, rows, [key]), asked, key), expected(rows, asked, [0]))


def test_an_empty_table_gives_each_row_once(tmp_path: Path) -> None:
    key = IndexKey.equal("id")
    table = table_of(tmp_path, [], [key])
    assert joined(table, [(1, "a", True)], key) == [(1, "a", False, None, None)]
    assert joined(table, [(1, "a", True)], None) == [(1, "a", False, None, None)]
