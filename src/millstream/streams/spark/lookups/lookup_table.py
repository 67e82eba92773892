"""What a lookup join asks of a table, and how the table is named to the workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from millstream.streams.connectors.options import milliseconds
from millstream.streams.operators.operator import Row
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType, Field, Schema
from millstream.streams.spark.columns.types import arrow_schema, spark_schema
from millstream.streams.spark.operators.arrow_rows import rows_of
from millstream.streams.spark.source.values import Converter, converter

__all__ = ["Found", "LookupSpec", "LookupTable", "arrow_batch", "plain_batch", "plain_rows"]


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


Found = Mapping[Row, Sequence[Row]]
"""Rows by key."""


class LookupTable(Protocol):
    """A table that finds its rows by their keys. One instance serves one thread of one worker."""

    def find(self, keys: Collection[Row]) -> Found:
        """The rows of each key that has any, in the columns of the spec.

        Keys and rows have plain values as operators have them; no part of a key is None. Raises JobError JOB_FAILED
        where the table cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """A table as it travels to the workers: `fields` are what is found, `keys` those of them that it is found by.

    `stored` are all columns that the data has, in order; `partitions` those that stand in the names of directories.
    `hints` are those of LOOKUP, `primary_key` that of the table.
    """

    name: str
    options: tuple[tuple[str, str], ...]
    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    stored: tuple[Field, ...]
    partitions: tuple[str, ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    primary_key: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: Table, options: Mapping[str, str], names: Sequence[str], keys: Sequence[str]) -> LookupSpec:
        """The columns `names` of `table`, found by `keys`. `options` are the table's, with secrets filled in."""
        stored = {column.name: Field(column.name, column.type) for column in table.physical}
        fields = tuple(stored[name] for name in names)
        given = tuple(sorted(options.items()))
        return cls(
            table.name, given, fields, tuple(keys), tuple(stored.values()), table.partition_keys, (), table.primary_key
        )

    def option(self, name: str, default: str = "") -> str:
        """The value of an option of the table."""
        return dict(self.options).get(name, default)

    def seconds(self, name: str, default: str = "") -> float | None:
        """The value of an option that is a duration; None where there is none."""
        text = self.option(name, default)
        return milliseconds(text) / 1000 if text else None

    @property
    def schema(self) -> Schema:
        """The columns that are found."""
        return Schema(self.fields)

    @property
    def key_types(self) -> tuple[DataType, ...]:
        """The types of the keys."""
        types = {field.name: field.type for field in self.fields}
        return tuple(types[key] for key in self.keys)

    def key_of(self, row: Row) -> Row:
        """The key of a row that was found."""
        names = self.schema.names
        return tuple(row[names.index(key)] for key in self.keys)
