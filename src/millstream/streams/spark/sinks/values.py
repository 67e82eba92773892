"""Arrow columns as Python values: one that Python cannot hold (a time beyond the year 9999) becomes None."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["python_values"]

_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS = (-719_162, 2_932_896)


def python_values(column: pa.Array) -> list[Any]:
    """The values of `column`, None for NULL."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = _within_python(column).to_pylist()
    return values


def _within_python(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        numbers, (first, last) = column.cast(pa.int64()), _MICROSECONDS
    elif pa.types.is_date32(column.type):
        numbers, (first, last) = column.cast(pa.int32()), _DAYS
    else:
        # A nested time: the whole value goes.
        return pa.nulls(len(column), column.type)
    fits = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    return pc.if_else(fits, column, pa.scalar(None, column.type))
