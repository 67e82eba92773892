"""Comparison, logic and conditional functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.streams.plan.expressions import BRANCHES, IS_WANTED, WANTED, Call, Literal
from millstream.streams.spark.columns.rows import WANTED_COLUMN
from millstream.streams.spark.functions.builder import Builder, literal, null_unless_all

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


def _branches(_call: Call, columns: Sequence[Column]) -> Column:
    """The numbers of the conditions that hold."""
    held = F.array(*(F.when(condition, F.lit(number)) for number, condition in enumerate(columns)))
    return F.filter(held, lambda number: number.isNotNull())


def _is_wanted(call: Call, _columns: Sequence[Column]) -> Column:
    """The same, as the source has judged them from a first number on."""
    first, end = (literal(call, place, int) or 0 for place in (0, 1))
    ours = F.filter(F.col(WANTED_COLUMN), lambda number: (number >= first) & (number < end))
    return F.transform(ours, lambda number: number - first)


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
    BRANCHES: _branches,
    WANTED: _is_wanted,
    IS_WANTED: lambda _call, columns: F.array_contains(F.col(WANTED_COLUMN), columns[0]),
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
