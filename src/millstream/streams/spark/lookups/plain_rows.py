"""Rows of texts, numbers and JSON values as rows or columns of the values that operators and lookups compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from millstream.streams.operators.operator import Row
from millstream.streams.plan.types import Schema
from millstream.streams.spark.columns.types import arrow_schema, spark_schema
from millstream.streams.spark.operators.values import rows_of
from millstream.streams.spark.source.values import Converter, converter

__all__ = ["arrow_batch", "plain_batch", "plain_rows"]


def plain_rows(rows: Iterable[Sequence[Any]], schema: Schema) -> list[Row]:
    """The rows in the columns of `schema`. A row with a value that does not fit is left out."""
    return rows_of(plain_batch(rows, schema), len(schema.fields))


def plain_batch(rows: Iterable[Sequence[Any]], schema: Schema) -> pa.RecordBatch:
    """The same as columns."""
    converters = [converter(field.type) for field in schema.fields]
    converted = [one for row in rows if (one := _convert_row(row, converters)) is not None]
    wanted = arrow_schema(spark_schema(schema))
    columns: Sequence[Sequence[Any]] = list(zip(*converted, strict=True)) if converted else [()] * len(wanted)
    return arrow_batch([pa.array(column, field.type) for column, field in zip(columns, wanted, strict=True)], schema)


def arrow_batch(columns: Sequence[pa.Array], schema: Schema) -> pa.RecordBatch:
    """Arrow columns of any type that can be cast to that of `schema`."""
    wanted = arrow_schema(spark_schema(schema))
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _convert_row(row: Sequence[Any], converters: Sequence[Converter]) -> list[Any] | None:
    try:
        return [None if value is None else convert(value) for value, convert in zip(row, converters, strict=True)]
    except (ValueError, TypeError, ArithmeticError, LookupError):
        return None
