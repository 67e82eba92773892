"""All outputs of a job as one data frame: a nullable struct per sink, so that one Spark job serves all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import Schema
from millstream.streams.spark.rows import Rows
from millstream.streams.spark.translate import is_windowed, translate
from millstream.streams.spark.types import spark_schema

__all__ = ["envelope", "passes"]


def envelope(outputs: Sequence[Node], source: DataFrame) -> DataFrame:
    """One column `s<number>` per output: a struct of its row, or NULL where the row is none of that output's.

    All outputs without a window share one pass over `source`, and a row of it can fill several columns; each output
    with a window has a pass of its own.
    """
    rows = [translate(output, source) for output in outputs]
    return reduce(DataFrame.unionAll, [_pass(members, rows, outputs) for members in _members(outputs)])


def passes(outputs: Sequence[Node]) -> int:
    """How often `envelope` reads the source."""
    return len(_members(outputs))


def _members(outputs: Sequence[Node]) -> list[list[int]]:
    """The outputs of each pass."""
    windowed = [[number] for number, output in enumerate(outputs) if is_windowed(output)]
    shared = [number for number, output in enumerate(outputs) if not is_windowed(output)]
    return [shared, *windowed] if shared else windowed


def _pass(members: list[int], rows: Sequence[Rows], outputs: Sequence[Node]) -> DataFrame:
    conditions = [rows[number].condition for number in members]
    frame = rows[members[0]].frame
    if all(condition is not None for condition in conditions):
        frame = frame.where(reduce(lambda one, other: one | other, [_certain(condition) for condition in conditions]))
    only = len(members) == 1
    columns = []
    for number, output in enumerate(outputs):
        schema = output.schema
        if number in members:
            columns.append(_struct(rows[number], schema, always=only).alias(_name(number)))
        else:
            columns.append(F.lit(None).cast(spark_schema(schema)).alias(_name(number)))
    return frame.select(*columns)


def _certain(condition: Column | None) -> Column:
    return F.lit(True) if condition is None else F.coalesce(condition, F.lit(False))


def _struct(rows: Rows, schema: Schema, *, always: bool) -> Column:
    """The row as a struct of the declared names and types; where not `always`, NULL unless the condition holds."""
    types = spark_schema(schema)
    fields = [rows.columns[field.name].cast(types[field.name].dataType).alias(field.name) for field in schema.fields]
    struct = F.struct(*fields)
    return struct if always or rows.condition is None else F.when(rows.condition, struct)


def _name(number: int) -> str:
    return f"s{number}"
