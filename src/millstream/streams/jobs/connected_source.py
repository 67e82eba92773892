"""A table behind the protocols of connectors as a source of a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.opening import connected_table, opened_source
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.jobs.dead_letter import DeadLetters
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.sources import Reading
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.connected import ConnectedDataSource, ConnectedSpec
from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.position import Position

__all__ = ["ConnectedSource"]


class ConnectedSource:
    """A table that its connector reads. Raises JobError JOB_FAILED where that refuses the table."""

    def __init__(self, table: Table, job: JobSettings) -> None:
        self.table = table
        self._connector = CONNECTORS[table.connector]
        self._nameserver = job.nameserver
        self._max_rows = job.max_rows
        source = opened_source(self._connector, connected_table(table, self._connector, job.nameserver))
        self._beginning = Position(dict(source.first()), name=table.name)
        self._end = Position(dict(source.latest()), name=table.name)

    def beginning(self) -> Position:
        """What the connector says."""
        return self._beginning

    def end(self) -> Position:
        """What there was to read when the source was opened."""
        return self._end

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The rows, read by the connector in Spark's Python workers."""
        spec = ConnectedSpec(
            connector=self._connector.name,
            table=connected_table(self.table, self._connector, self._nameserver, columns),
            start=reading.start,
            end=self._end,
            bounded=self._connector.bounded,
            max_rows=self._max_rows,
            final_tick=reading.final_tick,
            queues=reading.queues,
            wake_after_ms=reading.wake_after_ms,
            wake_again=reading.wake_again,
            python_path=tuple(str(Path(entry).absolute()) for entry in sys.path),
        )
        spark.dataSource.register(ConnectedDataSource)
        reader = spark.read if reading.batch else spark.readStream
        return reader.format(ConnectedDataSource.name()).option(SPEC_OPTION, spec.encode()).load()

    def guard(self, reading: object, job: str) -> None:
        """None: what connectors read is not judged."""

    def letters(self, spool: object) -> DeadLetters | None:
        """None: a connector gives rows, or fails."""
        return None
