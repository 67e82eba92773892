"""Connectors behind `SourceConnector` as job sources: micro-batches by offset, and one bounded batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from millstream.streams.connectors.opening import connected_table, opened_source
from millstream.streams.connectors.protocols import (
    ChoosesEnds,
    KeepsStart,
    Offsets,
    PlansRead,
    SetsAside,
    SourceConnector,
    SourcePartition,
)
from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.table import ConnectedTable, TableRead
from millstream.streams.errors import JobError
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.columns.types import arrow_schema
from millstream.streams.spark.source.data_source import load_rows
from millstream.streams.spark.source.dead_letters import DeadLetters, malformed_spool
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.reading import Alarm, Reading
from millstream.streams.spark.source.rows import END_OF_TIME_MS, WAKE_TIME_MS, tick_between, tick_row
from millstream.streams.spark.source.spec import SourceColumn, rows_schema

__all__ = [
    "ConnectedBatchReader",
    "ConnectedSource",
    "ConnectedSpec",
    "ConnectedStreamReader",
    "cap_rows",
    "find_modules",
    "fit_batch",
]


@dataclass(frozen=True, slots=True)
class ConnectedSpec:
    """What is read, as in `SourceSpec`: a `table` of the connector of that name.

    `python_path` is where the driver finds modules, for workers that begin with less. A `bounded` table is read up to
    `end`.
    """

    connector: str
    table: ConnectedTable
    start: Position
    end: Position
    bounded: bool = False
    max_rows: int = 0
    final_tick: bool = False
    queues: bool = False
    wake_after_ms: int = 0
    wake_again: bool = False
    python_path: tuple[str, ...] = ()

    def schema(self) -> spark.StructType:
        """Spark's schema of the rows with the hidden columns."""
        columns = tuple(SourceColumn(column.name, column.type) for column in self.table.columns)
        return rows_schema(columns, queues=self.queues)

    def open_source(self) -> SourceConnector:
        """The connector's source, in whatever process this is. Raises JobError."""
        find_modules(self.python_path)
        return opened_source(connector_of(self.connector), self.table)

    def stream_reader(self) -> DataSourceStreamReader:
        """A reader of micro-batches."""
        return ConnectedStreamReader(self)

    def batch_reader(self) -> DataSourceReader:
        """A reader of all between the start and the end."""
        return ConnectedBatchReader(self)


def find_modules(python_path: Sequence[str]) -> None:
    """Let this process find modules wherever the driver does."""
    sys.path.extend(entry for entry in python_path if entry not in sys.path)


class ConnectedPartition(InputPartition):
    """What one task reads: a partition of the connector, or a tick."""

    def __init__(self, part: SourcePartition | None, tick_ms: int | None = None) -> None:
        super().__init__(None)
        self.part = part
        self.tick_ms = tick_ms


class ConnectedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of a connector's rows; positions are its offsets."""

    def __init__(self, spec: ConnectedSpec) -> None:
        self._spec = spec
        self._source: SourceConnector | None = None
        self._target: Offsets | None = spec.end.queues if spec.bounded else None
        self._latest: Offsets = {}
        self._alarm = Alarm(spec.wake_after_ms, again=spec.wake_again)

    def __getstate__(self) -> dict[str, Any]:
        # A connector belongs to the process that opened it.
        return {**self.__dict__, "_source": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position that was fixed when the job's checkpoint was made."""
        return self._spec.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most `max_rows`, where the spec sets it."""
        return ReadMaxRows(self._spec.max_rows) if self._spec.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """A bounded run reads what is there now."""
        if self._target is None:
            self._target = self._open_source().latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself where there is nothing to read."""
        begin = Position.from_json(start).going_on()
        end = replace(begin, queues=self._end_of(begin.queues, limit.max_rows if isinstance(limit, ReadMaxRows) else 0))
        if end.rows_since(begin):
            self._alarm.rest()
            return end.to_json()
        if self._target is not None and self._spec.final_tick:
            return replace(begin, ended=True).to_json()
        if self._target is None and self._alarm.rings():
            return replace(begin, wakes=begin.wakes + 1).to_json()
        return begin.to_json() if Position.from_json(start).ended else start

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Where the data ended when it was last looked at, from which the progress tells how far behind a job is."""
        return Position(dict(self._latest), name=self._spec.start.name).to_json() if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        tasks = _tasks(self._open_source(), begin, until)
        tick_ms = tick_between(begin, until)
        if tick_ms is not None:
            tasks.append(ConnectedPartition(None, tick_ms))
        elif until.wakes > begin.wakes and not tasks:
            tasks.append(ConnectedPartition(None, WAKE_TIME_MS))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, partition)

    def _end_of(self, start: Offsets, max_rows: int) -> dict[str, int]:
        source = self._open_source()
        if isinstance(source, ChoosesEnds):
            return dict(source.end_of(start, max_rows, self._target))
        self._latest = source.latest() if self._target is None else self._target
        return cap_rows(start, self._latest, max_rows)

    def _open_source(self) -> SourceConnector:
        if self._source is None:
            self._source = self._spec.open_source()
        return self._source


class ConnectedBatchReader(DataSourceReader):
    """The rows between the spec's start and end, once."""

    def __init__(self, spec: ConnectedSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; at least one, which may be empty."""
        spec = self._spec
        tasks = _tasks(spec.open_source(), spec.start, spec.end)
        last = ConnectedPartition(None, END_OF_TIME_MS if spec.final_tick else None)
        return [*tasks, last] if spec.final_tick or not tasks else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, partition)


def cap_rows(begin: Offsets, latest: Offsets, max_rows: int) -> dict[str, int]:
    """Where a micro-batch of about `max_rows` ends (0: no limit), with a share for each queue by what it holds."""
    waiting = {queue: max(0, end - begin.get(queue, 0)) for queue, end in latest.items()}
    total = sum(waiting.values())
    ends = dict(begin)
    for queue, count in waiting.items():
        share = count if not max_rows or total <= max_rows else min(count, max(1, count * max_rows // total))
        ends[queue] = begin.get(queue, 0) + (share if count else 0)
    return ends


def fit_batch(batch: pa.RecordBatch, schema: pa.Schema, queue: str | None, table: str) -> pa.RecordBatch:
    """A connector's rows as Spark takes them; `queue` fills the hidden column, where there is one.

    Raises JobError JOB_FAILED for a column whose values are of another type.
    """
    hidden = 1 if queue is None else 2
    arrays = []
    for field in list(schema)[: len(schema) - hidden]:
        place = batch.schema.get_field_index(field.name)
        if place < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            arrays.append(batch.column(place).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            given = batch.column(place).type
            words = f"The connector of {table} gives {field.name} as {given}, which does not fit {field.type}: {error}."
            raise JobError("JOB_FAILED", words) from None
    if queue is not None:
        arrays.append(pa.repeat(queue, batch.num_rows))
    arrays.append(pa.nulls(batch.num_rows, schema.field(len(schema) - 1).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _tasks(source: SourceConnector, begin: Position, until: Position) -> list[ConnectedPartition]:
    if not until.rows_since(begin):
        return []
    return [ConnectedPartition(part) for part in source.partitions(begin.queues, until.queues)]


def _read(spec: ConnectedSpec, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, ConnectedPartition):
        raise TypeError(f"{partition!r} is no partition of a connector")
    schema = arrow_schema(spec.schema())
    if partition.part is not None:
        queue = partition.part.queue if spec.queues else None
        for batch in spec.open_source().read(partition.part):
            if batch.num_rows:
                yield fit_batch(batch, schema, queue, spec.table.name)
    if partition.tick_ms is not None:
        yield tick_row(schema, partition.tick_ms)


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
        return load_rows(spark, spec, batch=reading.batch, ends=reading.ends)

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
