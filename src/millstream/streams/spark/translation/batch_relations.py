"""Joins and aggregations of batch jobs on Spark's own operators, which choose how to run them and spill to disks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.aggregates import Aggregate
from millstream.streams.plan.joins import Join, JoinKind
from millstream.streams.spark.columns.rows import Rows
from millstream.streams.spark.translation.expressions import aggregate, column_of

__all__ = ["batch_aggregation", "batch_join"]

_HOW: Final = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left_outer",
    JoinKind.RIGHT: "right_outer",
    JoinKind.FULL: "full_outer",
    JoinKind.SEMI: "left_semi",
    JoinKind.ANTI: "left_anti",
}


def batch_join(node: Join, left: Rows, right: Rows) -> Rows:
    """The pairs of two relations whose rows are all there and are inserts."""
    ours, theirs = node.left.schema.names, node.right.schema.names
    left_frame, right_frame = _select_columns(left, ours, "l"), _select_columns(right, theirs, "r")
    named = {name: F.col(f"l{number}") for number, name in enumerate(ours)}
    named |= {name: F.col(f"r{number}") for number, name in enumerate(theirs)}
    holds = [named[one] == named[other] for one, other in node.keys]
    if node.condition is not None:
        holds.append(column_of(node.condition, named))
    how = _HOW[node.kind]
    if not holds and node.kind is JoinKind.INNER:
        joined = left_frame.crossJoin(right_frame)
    else:
        joined = left_frame.join(right_frame, reduce(and_, holds) if holds else F.lit(True), how)
    return Rows(joined, {name: named[name] for name in node.schema.names})


def batch_aggregation(node: Aggregate, rows: Rows) -> Rows:
    """One row for each key of a relation whose rows are all there and are inserts."""
    frame = rows.filtered_frame()
    keys = [column_of(key, rows.columns).alias(f"k{number}") for number, (_, key) in enumerate(node.keys)]
    calls = [aggregate(call, rows.columns).alias(f"a{number}") for number, (_, call) in enumerate(node.aggregates)]
    grouped = frame.groupBy(*keys).agg(*calls) if calls else frame.select(*keys).distinct()
    columns = {name: F.col(f"k{number}") for number, (name, _) in enumerate(node.keys)}
    columns |= {name: F.col(f"a{number}") for number, (name, _) in enumerate(node.aggregates)}
    return Rows(grouped, columns)


def _select_columns(rows: Rows, names: Sequence[str], prefix: str) -> DataFrame:
    """The rows with their columns under names that the other side of a join has not."""
    columns: list[Column] = [rows.columns[name].alias(f"{prefix}{number}") for number, name in enumerate(names)]
    # A side of which no column is read still has rows.
    return rows.filtered_frame().select(*(columns or [F.lit(True).alias(prefix)]))
