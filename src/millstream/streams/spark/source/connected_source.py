"""A table behind the protocols of connectors as a source of a job."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.opening import connected_table, opened_source
from millstream.streams.connectors.protocols import ChoosesEnds, KeepsStart, PlansRead, SetsAside
from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.table import TableRead
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.connected import ConnectedSpec
from millstream.streams.spark.source.data_source import load_rows
from millstream.streams.spark.source.dead_letters import DeadLetters
from millstream.streams.spark.source.malformed import malformed_spool
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.reading import Reading

__all__ = ["ConnectedSource"]


class ConnectedSource:
    """A table that its connector reads. Raises JobError JOB_FAILED where that refuses the table.

    `max_rows` of a micro-batch, 0 for no limit.
    """

    def __init__(self, table: Table, nameserver: str, max_rows: int) -> None:
        self.table = table
        self._connector = connector_of(table.connector)
        self._nameserver = nameserver
        self._max_rows = max_rows
        self._source = opened_source(self._connector, connected_table(table, self._connector, nameserver))
        start_ms = self._source.start_ms() if isinstance(self._source, KeepsStart) else 0
        self._beginning = Position(dict(self._source.first()), cut_ms=start_ms, name=table.name)
        self._end = self._latest() if self._connector.bounded else None

    def beginning(self) -> Position:
        """What the connector says; `cut_ms` is when the job first started, where the connector wants to know that."""
        return self._beginning

    def end(self) -> Position:
        """What there is to read when this is first asked; of a table that is bounded, when the source was opened."""
        if self._end is None:
            self._end = self._latest()
        return self._end

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The rows, read by the connector in Spark's Python workers."""
        spec = self.spec(columns, reading, spark.sparkContext.defaultParallelism)
        return load_rows(spark, spec, batch=reading.batch)

    def spec(self, columns: Mapping[str, DataType], reading: Reading, parallelism: int) -> ConnectedSpec:
        """What is read of the table, and how."""
        source = self._source
        table = connected_table(self.table, self._connector, self._nameserver, columns)
        read = TableRead(
            directory=str(reading.notes),
            spool=str(reading.spool),
            start_ms=reading.start.cut_ms,
            parallelism=parallelism,
            batch=reading.batch,
            plan=source.plan(reading.conditions) if isinstance(source, PlansRead) else "",
        )
        table = replace(table, read=read)
        bounded = self._connector.bounded
        if reading.batch and self._end is None:
            # What is there may be told by the job's directory.
            latest = opened_source(self._connector, table).latest()
            self._end = Position(dict(latest), name=table.name)
        return ConnectedSpec(
            connector=self._connector.name,
            table=table,
            start=reading.start,
            end=self.end() if bounded or reading.batch else reading.start,
            bounded=bounded,
            max_rows=self._max_rows,
            final_tick=reading.final_tick,
            queues=reading.queues,
            # A source that chooses the ends of micro-batches is not one that falls silent.
            wake_after_ms=0 if isinstance(source, ChoosesEnds) else reading.wake_after_ms,
            wake_again=reading.wake_again,
            python_path=tuple(str(Path(entry).absolute()) for entry in sys.path),
        )

    def guard(self, reading: Reading, job: str) -> None:
        """None: what connectors read is not judged."""

    def letters(self, spool: Path) -> DeadLetters | None:
        """Rows that do not fit their columns are counted, where the connector sets some aside."""
        if not isinstance(self._source, SetsAside):
            return None
        rows = self._source.malformed_rows()
        return DeadLetters(
            malformed_spool(spool), rows.place, None, self._nameserver, 0.0, table=self.table.name, remedy=rows.remedy
        )

    def _latest(self) -> Position:
        return Position(dict(self._source.latest()), name=self.table.name)
