"""Functions that Spark does not have, evaluated in a Python worker, a batch at a time; equal rows are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

__all__ = ["by_row"]

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
