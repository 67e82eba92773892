"""All outputs of a job in one data frame: a nullable struct per sink, so that one Spark job serves all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, ByteType, StructType

from millstream.streams.plan.nodes import Node, Scan, scans_of
from millstream.streams.plan.types import Schema
from millstream.streams.spark.columns.rows import KIND_COLUMN, Rows
from millstream.streams.spark.columns.types import spark_schema
from millstream.streams.spark.sinks.sink import EVENT_TIMES
from millstream.streams.spark.translation.translate import Translation, is_shareable

__all__ = ["envelope", "passes"]


def envelope(outputs: Sequence[Node], translation: Translation, timed: Sequence[Scan] = ()) -> DataFrame:
    """One column `s<number>` per output: a struct of its row, or NULL where the row is none of that output's.

    The struct of an output whose rows change ends with the row kind; one of merged outputs is an array of structs. All
    outputs without state that read one table share one pass over it, and a row of it can fill several columns; each
    output with state has a pass of its own.
    Behind the outputs come the event times of the `timed` tables, rows of `EVENT_TIMES`.
    """
    rows = [*(translation.rows(output) for output in outputs), *(translation.event_times(scan) for scan in timed)]
    schemas = [*(output.schema for output in outputs), *(EVENT_TIMES for _ in timed)]
    return reduce(DataFrame.unionAll, [_pass(members, rows, schemas) for members in _members([*outputs, *timed])])


def passes(outputs: Sequence[Node]) -> int:
    """How often `envelope` reads a source at most."""
    counts: Counter[str] = Counter()
    for members in _members(outputs):
        # Those that share a pass have one scan, the same for all.
        counts.update(scan.table.name for scan in scans_of(outputs[members[0]]))
    return max(counts.values(), default=1)


def _members(outputs: Sequence[Node]) -> list[list[int]]:
    """The outputs of each pass."""
    alone: list[list[int]] = []
    shared: dict[str, list[int]] = {}
    for number, output in enumerate(outputs):
        tables = [scan.table.name for scan in scans_of(output)]
        if is_shareable(output) and len(tables) == 1:
            shared.setdefault(tables[0], []).append(number)
        else:
            alone.append([number])
    return [*shared.values(), *alone]


def _pass(members: list[int], rows: Sequence[Rows], schemas: Sequence[Schema]) -> DataFrame:
    conditions = [rows[number].condition for number in members]
    frame = rows[members[0]].frame
    if all(condition is not None for condition in conditions):
        frame = frame.where(reduce(lambda one, other: one | other, [_certain(condition) for condition in conditions]))
    only = len(members) == 1
    columns = []
    for number, schema in enumerate(schemas):
        if number in members:
            columns.append(_struct(rows[number], schema, always=only).alias(_name(number)))
        else:
            columns.append(F.lit(None).cast(_type(rows[number], schema)).alias(_name(number)))
    return frame.select(*columns)


def _certain(condition: Column | None) -> Column:
    return F.lit(True) if condition is None else F.coalesce(condition, F.lit(False))


def _struct(rows: Rows, schema: Schema, *, always: bool) -> Column:
    """The row as a struct of the declared names and types; where not `always`, NULL unless the condition holds."""
    copies = rows.copies
    if copies is None:
        struct = _fields(rows, rows.columns, schema)
    else:
        struct = F.transform(copies.each, lambda element: _fields(rows, copies.columns(element), schema))
    return struct if always or rows.condition is None else F.when(rows.condition, struct)


def _fields(rows: Rows, columns: Mapping[str, Column], schema: Schema) -> Column:
    types = spark_schema(schema)
    fields = [columns[field.name].cast(types[field.name].dataType).alias(field.name) for field in schema.fields]
    if rows.kind is not None:
        fields.append(rows.kind.alias(KIND_COLUMN))
    return F.struct(*fields)


def _type(rows: Rows, schema: Schema) -> StructType | ArrayType:
    declared = spark_schema(schema)
    if rows.kind is not None:
        declared = declared.add(KIND_COLUMN, ByteType())
    return declared if rows.copies is None else ArrayType(declared)


def _name(number: int) -> str:
    return f"s{number}"
