"""Arithmetic. Integer division stays an integer; a division by zero is NULL; overflows wrap."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Call, Literal, columns_of
from millstream.streams.plan.types import TypeKind
from millstream.streams.spark.functions.builder import Builder
from millstream.streams.spark.functions.times import ceil_time, floor_time

__all__ = ["NUMBERS"]


def _divide(call: Call, columns: Sequence[Column]) -> Column:
    left, right = call.arguments
    if left.type.is_integer and right.type.is_integer:
        return F.call_function("div", columns[0], columns[1])
    return columns[0] / columns[1]


def _floor(call: Call, columns: Sequence[Column]) -> Column:
    return floor_time(call, columns) if call.arguments[0].type.is_timestamp else _whole(call, columns, F.floor)


def _ceil(call: Call, columns: Sequence[Column]) -> Column:
    return ceil_time(call, columns) if call.arguments[0].type.is_timestamp else _whole(call, columns, F.ceil)


def _whole(call: Call, columns: Sequence[Column], round_off: object) -> Column:
    if call.arguments[0].type.kind is TypeKind.DATE:
        return floor_time(call, columns) if round_off is F.floor else ceil_time(call, columns)
    return F.floor(columns[0]) if round_off is F.floor else F.ceil(columns[0])


def _round(call: Call, columns: Sequence[Column]) -> Column:
    if len(columns) > 1 and list(columns_of(call.arguments[1])):
        raise JobError("JOB_FAILED", f"The digits of {call} are not a constant.", remedy="Write the number of digits.")
    return F.round(*columns)


def _negate(call: Call, columns: Sequence[Column]) -> Column:
    argument = call.arguments[0]
    if isinstance(argument, Literal) and isinstance(argument.value, datetime.timedelta):
        return F.lit(-argument.value)
    return -columns[0]


NUMBERS: dict[str, Builder] = {
    "+": lambda _call, columns: columns[0] + columns[1],
    "-": lambda _call, columns: columns[0] - columns[1],
    "*": lambda _call, columns: columns[0] * columns[1],
    "/": _divide,
    "%": lambda _call, columns: columns[0] % columns[1],
    "MOD": lambda _call, columns: columns[0] % columns[1],
    "NEGATE": _negate,
    "ABS": lambda _call, columns: F.abs(columns[0]),
    "CEIL": _ceil,
    "FLOOR": _floor,
    "ROUND": _round,
    "POWER": lambda _call, columns: F.pow(columns[0], columns[1]),
    "SQRT": lambda _call, columns: F.sqrt(columns[0]),
    "SIGN": lambda _call, columns: F.signum(columns[0]),
}
