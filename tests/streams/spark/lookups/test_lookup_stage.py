"""Rows that are looked up, batch by batch: several matches, none, conditions, and rows that ask nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.streams.plan.expressions import Call, Column, Expression
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, STRING
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.stage import LookupStage, LookupStep

TABLE = Table("products", (PhysicalColumn("id", BIGINT), PhysicalColumn("name", STRING)), {})
INPUT = [pa.field("product", pa.int64()), pa.field("word", pa.string()), pa.field("__keep", pa.bool_())]
OUTPUT = pa.schema([*INPUT, pa.field("__found", pa.bool_()), pa.field("id", pa.int64()), pa.field("name", pa.string())])


def looked_up(
    file: Path, rows: Sequence[tuple[Any, ...]], condition: Expression | None = None
) -> list[tuple[Any, ...]]:
    """What comes of (product, word, asks) over a file of products."""
    options = {"connector": "filesystem", "path": str(file), "format": "csv"}
    spec = LookupSpec.of(TABLE, options, ["id", "name"], ["id"])
    read = ("word",) if condition is not None else ()
    step = LookupStep("job", spec, (0,), 2, read, (1,) if read else (), ("id", "name"), condition, OUTPUT)
    arrays = [pa.array(list(values), field.type) for values, field in zip(zip(*rows, strict=True), INPUT, strict=True)]
    batches = [pa.RecordBatch.from_arrays(arrays, names=[field.name for field in INPUT])]
    found = [batch.to_pylist() for batch in LookupStage(step)(iter([batches[0].slice(0, 1), batches[0].slice(1)]))]
    return [tuple(row[name] for name in ("word", "__found", "id", "name")) for rows in found for row in rows]


def test_a_row_comes_once_for_each_match_and_once_without_any(tmp_path: Path) -> None:
    file = tmp_path / "products.csv"
    file.write_text("1,one\n2,two\n2,zwei\n")
    rows = [(2, "a", True), (1, "b", True), (3, "c", True), (None, "d", True), (1, "e", False)]
    assert looked_up(file, rows) == [
        ("a", True, 2, "two"),
        ("a", True, 2, "zwei"),
        ("b", True, 1, "one"),
        ("c", False, None, None),
        ("d", False, None, None),
        ("e", False, None, None),
    ]


def test_a_condition_leaves_matches_out(tmp_path: Path) -> None:
    file = tmp_path / "products.csv"
    file.write_text("1,one\n2,two\n2,zwei\n")
    below = Call("<", (Column("word", STRING), Column("name", STRING)), BOOLEAN)
    assert looked_up(file, [(2, "x", True), (2, "z", True), (1, "a", True)], below) == [
        ("x", True, 2, "zwei"),
        ("z", True, 2, "zwei"),
        ("a", True, 1, "one"),
    ]
    assert looked_up(file, [(1, "x", True)], below) == [("x", False, None, None)]
