"""A table of made-up rows as a source of a pipeline."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.options import milliseconds
from millstream.streams.errors import JobError
from millstream.streams.jobs.dead_letter import DeadLetters
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.sources import Reading
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.datagen.reader import DatagenDataSource
from millstream.streams.spark.source.datagen.spec import COUNT_OPTION, QUEUE, DatagenSpec, MadeColumn
from millstream.streams.spark.source.datagen.values import DRAWN, INTEGERS
from millstream.streams.spark.source.made_rows import last_row
from millstream.streams.spark.source.position import Position

__all__ = ["DatagenSource", "row_count"]

_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 63}
_GREATEST_FRACTION = 1e9
_DEFAULT_RATE = "10000"


class DatagenSource:
    """Rows that are made up. Raises JobError JOB_FAILED for a column whose values cannot be made."""

    def __init__(self, table: Table, job: JobSettings) -> None:
        self.table = table
        self._max_rows = job.max_rows
        self._columns = {column.name: _made(column, table) for column in table.physical}
        self._base_time_ms = int(time.time() * 1000)

    def beginning(self) -> Position:
        """Before the first row; `cut_ms` is its time, which a checkpoint keeps."""
        return Position({QUEUE: 0}, cut_ms=self._base_time_ms, name=self.table.name)

    def end(self) -> Position:
        """Behind the last row. Raises JobError JOB_FAILED where there is none."""
        return Position({QUEUE: last_row(self.table.name, row_count(self.table), COUNT_OPTION)}, name=self.table.name)

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The rows, made in Spark's Python workers."""
        places = [place for place, name in enumerate(self._columns) if name in columns]
        made = list(self._columns.values())
        spec = DatagenSpec(
            table=self.table.name,
            columns=tuple(made[place] for place in places),
            numbers=tuple(places),
            base_time_ms=reading.start.cut_ms,
            start=reading.start,
            rows=row_count(self.table),
            rows_per_s=int(self.table.options.get("rows-per-second", _DEFAULT_RATE)),
            end=self.end() if reading.batch else None,
            max_rows=self._max_rows,
            parallelism=spark.sparkContext.defaultParallelism,
            final_tick=reading.final_tick,
            queues=reading.queues,
        )
        spark.dataSource.register(DatagenDataSource)
        reader = spark.read if reading.batch else spark.readStream
        return reader.format(DatagenDataSource.name()).option(SPEC_OPTION, spec.encode()).load()

    def guard(self, reading: object, job: str) -> None:
        """None: what is made up is not judged."""

    def letters(self, spool: object) -> DeadLetters | None:
        """None: what is made up is never malformed."""
        return None


def row_count(table: Table) -> int:
    """How many rows there are: as many as are asked for, or as the shortest sequence has; 0 without end."""
    options = table.options
    counts = [int(options["number-of-rows"])] if "number-of-rows" in options else []
    for column in table.physical:
        if f"fields.{column.name}.end" in options:
            first, last = (int(float(options.get(f"fields.{column.name}.{of}", "0"))) for of in ("start", "end"))
            counts.append(last - first + 1)
    return max(0, min(counts, default=0))


def _made(column: PhysicalColumn, table: Table) -> MadeColumn:
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
