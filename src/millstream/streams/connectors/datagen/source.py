"""Rows that are made up column by column: a row is the same however often it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from millstream.streams.connectors.datagen.values import DRAWN, INTEGERS, MadeColumn, make_column
from millstream.streams.connectors.made_rows import MadeRows
from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.protocols import Offsets, SourcePartition
from millstream.streams.connectors.row_batches import batch_of
from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.types import Schema, TypeKind
from millstream.streams.spark.columns.types import arrow_schema, spark_schema

__all__ = ["QUEUE", "DatagenSource", "row_count"]

QUEUE: Final = "datagen/0"
"""The one queue of such a table; its offsets are the rows' numbers."""

_COUNT_OPTION: Final = "number-of-rows"

_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 63}
_GREATEST_FRACTION = 1e9


class DatagenSource:
    """Rows that are made up. Raises JobError JOB_FAILED for a column whose values cannot be made.

    The time of the first row, when the job first started, is the seed: another job has other rows.
    """

    def __init__(self, table: ConnectedTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = table.read
        self._rate = table.number("rows-per-second")
        self._columns = [_column_maker(column, table) for column in table.stored]
        self._schema: pa.Schema = arrow_schema(spark_schema(Schema(table.schema.fields)))
        count = row_count(table.options, [column.name for column in table.stored])
        self._rows = MadeRows(table.name, QUEUE, count, _COUNT_OPTION, self._turns_in, clock)

    def start_ms(self) -> int:
        """Now."""
        return int(time.time() * 1000)

    def first(self) -> Offsets:
        """Before the first row."""
        return self._rows.first()

    def latest(self) -> Offsets:
        """Behind the last row. Raises JobError JOB_FAILED where there is none."""
        return self._rows.latest()

    def end_of(self, start: Offsets, max_rows: int, target: Offsets | None) -> Offsets:
        """Where a micro-batch ends."""
        return self._rows.end_of(start, max_rows, target)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        """The tasks of a micro-batch."""
        return self._rows.partitions(start, end, self._read.parallelism)

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._rows.batches(partition, self._batch)

    def _turns_in(self, elapsed_s: float) -> int:
        return int(elapsed_s * self._rate)

    def _batch(self, start: int, end: int) -> pa.RecordBatch:
        places = {column.name: place for place, column in enumerate(self._columns)}
        arrays = [
            make_column(
                self._columns[places[field.name]],
                places[field.name],
                range(start, end),
                field.type,
                base_time_ms=self._read.start_ms,
                rows_per_s=self._rate,
            )
            for field in self._schema
        ]
        return batch_of(arrays, self._schema, end - start)


def row_count(options: Mapping[str, str], columns: Sequence[str]) -> int:
    """How many rows there are: as many as are asked for, or as the shortest sequence has; 0 without end."""
    counts = [int(options[_COUNT_OPTION])] if _COUNT_OPTION in options else []
    for column in columns:
        if f"fields.{column}.end" in options:
            first, last = (int(float(options.get(f"fields.{column}.{of}", "0"))) for of in ("start", "end"))
            counts.append(last - first + 1)
    return max(0, min(counts, default=0))


def _column_maker(column: ConnectedColumn, table: ConnectedTable) -> MadeColumn:
    kind = column.type.kind
    if kind not in DRAWN:
        words = f"The column {column.name} of {table.name} is of type {column.type}; datagen makes no such values."
        raise JobError("JOB_FAILED", words, remedy="Use plain types, and ROW(...) or ARRAY[...] in the query.")

    def option(name: str, default: str) -> str:
        return table.options.get(f"fields.{column.name}.{name}", default)

    limit = 1 << (_BITS[kind] - 1) if kind in INTEGERS else _GREATEST_FRACTION
    least, greatest = -limit, limit - 1 if kind in INTEGERS else limit
    return MadeColumn(
        column.name,
        column.type,
        is_sequence=option("kind", "random").lower() == "sequence",
        first=int(float(option("start", "0"))),
        least=float(option("min", str(least))),
        greatest=float(option("max", str(greatest))),
        length=int(option("length", "100")),
        varies=option("var-len", "false").lower() == "true",
        max_past_ms=milliseconds(option("max-past", "0 s")),
        null_rate=float(option("null-rate", "0")),
    )
