"""A nexmark table as a source of a pipeline: its columns by the names of the events' fields."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.nexmark.settings import NexmarkSettings, is_paced
from millstream.streams.errors import JobError
from millstream.streams.jobs.dead_letter import DeadLetters
from millstream.streams.jobs.settings import JobSettings, duration_ms
from millstream.streams.jobs.sources import Reading
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.made_rows import last_row
from millstream.streams.spark.source.nexmark.events import FIELDS
from millstream.streams.spark.source.nexmark.reader import NexmarkDataSource
from millstream.streams.spark.source.nexmark.spec import COUNT_OPTION, QUEUE, NexmarkSpec
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn

__all__ = ["NexmarkSource"]


class NexmarkSource:
    """Events that are made up. Raises JobError JOB_FAILED for a column or field that they do not have.

    Without the option 'base-time' the first event happens when a fresh job starts, which its checkpoint keeps.
    """

    def __init__(self, table: Table, job: JobSettings) -> None:
        self.table = table
        _check_columns(table)
        options = table.options
        self._max_rows = job.max_rows
        self._settings = NexmarkSettings.of(
            options,
            period_ms=duration_ms(options.get("rate.period", "600 s")),
            disorder_ms=duration_ms(options.get("out-of-order.max-delay", "0 s")),
        )
        self._base_time_ms = int(options.get("base-time", time.time() * 1000))

    def beginning(self) -> Position:
        """Before the first event; `cut_ms` is its time."""
        return Position({QUEUE: 0}, cut_ms=self._base_time_ms, name=self.table.name)

    def end(self) -> Position:
        """Behind the last event."""
        return Position({QUEUE: last_row(self.table.name, self._settings.events, COUNT_OPTION)}, name=self.table.name)

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The events, made in Spark's Python workers."""
        spec = self._spec(
            reading.start,
            columns=tuple(
                SourceColumn(column.name, column.type) for column in self.table.physical if column.name in columns
            ),
            end=self.end() if reading.batch else None,
            max_rows=self._max_rows,
            parallelism=spark.sparkContext.defaultParallelism,
            final_tick=reading.final_tick,
            queues=reading.queues,
            is_limited=is_paced(self.table.options) and not reading.batch,
        )
        spark.dataSource.register(NexmarkDataSource)
        reader = spark.read if reading.batch else spark.readStream
        return reader.format(NexmarkDataSource.name()).option(SPEC_OPTION, spec.encode()).load()

    def guard(self, reading: object, job: str) -> None:
        """None: what is made up is not judged."""

    def letters(self, spool: object) -> DeadLetters | None:
        """None: what is made up is never malformed."""
        return None

    def _spec(self, start: Position, **more: object) -> NexmarkSpec:
        return NexmarkSpec(self.table.name, self._settings, start.cut_ms, start=start, **{"columns": (), **more})  # type: ignore[arg-type]


def _check_columns(table: Table) -> None:
    for column in table.columns:
        if not isinstance(column, PhysicalColumn):
            continue
        if column.name not in FIELDS:
            raise _unknown(table, column.name, ", ".join(FIELDS))
        for part in column.type.fields:
            if part.name not in FIELDS[column.name]:
                raise _unknown(table, f"{column.name}.{part.name}", ", ".join(FIELDS[column.name]))


def _unknown(table: Table, name: str, known: str) -> JobError:
    words = f"Nexmark's events have no {name}, which {table.name} declares."
    return JobError("JOB_FAILED", words, remedy=f"They have {known}.")
