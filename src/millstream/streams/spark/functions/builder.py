"""The interface of Spark column builders, and functions that run batchwise in a Python worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from millstream.streams.plan.expressions import Call, Literal

__all__ = ["Builder", "by_row", "literal", "null_unless_all"]


Builder = Callable[[Call, Sequence[Column]], Column]
"""Builds the column of a call from the columns of its arguments, in their order."""

T = TypeVar("T")


def literal(call: Call, position: int, kind: type[T]) -> T | None:
    """The value of a literal argument of that kind; None if it is missing, NULL or no literal."""
    if position >= len(call.arguments):
        return None
    argument = call.arguments[position]
    value = argument.value if isinstance(argument, Literal) else None
    return value if isinstance(value, kind) else None


def null_unless_all(columns: Sequence[Column], value: Column) -> Column:
    """`value` where no column is NULL, else NULL."""
    condition = F.lit(True)
    for column in columns:
        condition = condition & column.isNotNull()
    return F.when(condition, value)


_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def by_row(function: Callable[..., Any], result: str, *columns: Column, nulls: bool = False) -> Column:
    """`function` of each row's values; NULL where one of them is, unless it takes `nulls`. `result` is Spark's type.

    The function raises for no value: an error in a worker ends the query.
    """
    arrow_type = _ARROW_TYPES[result]

    def compute(*arrays: pa.Array) -> pa.Array:
        known: dict[tuple[Any, ...], Any] = {}
        values = []
        for row in zip(*(array.to_pylist() for array in arrays), strict=True):
            if row not in known:
                value = None if not nulls and None in row else function(*row)
                known[row] = list(value.items()) if isinstance(value, dict) else value
            values.append(known[row])
        return _array(values, arrow_type)

    # PySpark's own hints do not know a plain function of arrays.
    wrap: Callable[..., Callable[..., Column]] = arrow_udf
    return wrap(compute, result)(*columns)


def _array(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, arrow_type)
    except UnicodeEncodeError:
        return pa.array([_whole_text(value) for value in values], arrow_type)


def _whole_text(value: Any) -> Any:
    """The value with ? for halves of characters, which JSON and URLs can hold and UTF-8 cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return type(value)(map(_whole_text, value)) if isinstance(value, list | tuple) else value
