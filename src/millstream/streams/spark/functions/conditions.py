"""Comparison, logic and choice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.expressions import Call, Literal
from millstream.streams.spark.functions.builder import Builder, null_unless_all

__all__ = ["CONDITIONS"]


def _and(_call: Call, columns: Sequence[Column]) -> Column:
    return reduce(lambda left, right: left & right, columns)


def _or(_call: Call, columns: Sequence[Column]) -> Column:
    return reduce(lambda left, right: left | right, columns)


def _in(call: Call, columns: Sequence[Column]) -> Column:
    wanted = call.arguments[1:]
    if all(isinstance(value, Literal) and value.value is not None for value in wanted):
        return columns[0].isin(*columns[1:])
    return reduce(lambda left, right: left | right, (columns[0] == column for column in columns[1:]))


def _if(_call: Call, columns: Sequence[Column]) -> Column:
    condition, then, otherwise = columns
    return F.when(condition, then).otherwise(otherwise)


CONDITIONS: dict[str, Builder] = {
    "=": lambda _call, columns: columns[0] == columns[1],
    "<>": lambda _call, columns: columns[0] != columns[1],
    "<": lambda _call, columns: columns[0] < columns[1],
    "<=": lambda _call, columns: columns[0] <= columns[1],
    ">": lambda _call, columns: columns[0] > columns[1],
    ">=": lambda _call, columns: columns[0] >= columns[1],
    "AND": _and,
    "OR": _or,
    "NOT": lambda _call, columns: ~columns[0],
    "IS NULL": lambda _call, columns: columns[0].isNull(),
    "IS NOT NULL": lambda _call, columns: columns[0].isNotNull(),
    "IN": _in,
    "BETWEEN": lambda _call, columns: columns[0].between(columns[1], columns[2]),
    "IS DISTINCT FROM": lambda _call, columns: ~columns[0].eqNullSafe(columns[1]),
    "FAIL": lambda _call, columns: F.raise_error(columns[0]).cast("boolean"),
    "COALESCE": lambda _call, columns: F.coalesce(*columns),
    "IFNULL": lambda _call, columns: F.coalesce(*columns),
    "NVL": lambda _call, columns: F.coalesce(*columns),
    "TYPEOF": lambda call, _columns: F.lit(str(call.arguments[0].type)),
    "NULLIF": lambda _call, columns: F.nullif(columns[0], columns[1]),
    "IF": _if,
    # Spark passes over NULLs here; in Flink one NULL makes the whole NULL.
    "GREATEST": lambda _call, columns: (
        null_unless_all(columns, F.greatest(*columns)) if len(columns) > 1 else columns[0]
    ),
    "LEAST": lambda _call, columns: null_unless_all(columns, F.least(*columns)) if len(columns) > 1 else columns[0],
}
