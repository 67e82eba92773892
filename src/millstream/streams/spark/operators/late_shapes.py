"""What the late rows of an operator are: columns by name, and the tables that they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from millstream.streams.operators.operator import Row
from millstream.streams.plan.nodes import scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Field, Schema
from millstream.streams.spark.columns.types import arrow_schema, spark_schema
from millstream.streams.spark.operators.values import batch_of
from millstream.streams.spark.operators.wiring import Wiring

__all__ = ["LateShape", "late_shapes"]


@dataclass(frozen=True, slots=True)
class LateShape:
    """One input of an operator. Columns that the operator computes for itself have the text of the expression."""

    schema: Schema
    tables: tuple[Table, ...]

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Late rows of that input in columns."""
        arrow = arrow_schema(spark_schema(self.schema))
        return pa.RecordBatch.from_arrays(batch_of(rows, list(arrow)), schema=arrow)


def late_shapes(wiring: Wiring) -> tuple[LateShape, ...]:
    """The shape of each input."""
    shapes = []
    for wire in wiring.inputs:
        tables = {scan.table.name: scan.table for scan in scans_of(wire.node)}
        fields = tuple(Field(str(column), column.type) for column in wire.columns)
        shapes.append(LateShape(Schema(fields), tuple(tables.values())))
    return tuple(shapes)
