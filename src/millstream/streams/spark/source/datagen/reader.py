"""`spark.readStream.format("millstream-datagen")`: made-up rows in micro-batches, and once as a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millstream.streams.errors import JobError
from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.datagen.spec import QUEUE, DatagenSpec
from millstream.streams.spark.source.datagen.values import column_values
from millstream.streams.spark.source.partition import TopicPartition, divide
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.reader import END_OF_TIME_MS
from millstream.streams.spark.source.rows import tick_row
from millstream.streams.spark.types import arrow_schema

__all__ = ["DatagenBatchReader", "DatagenDataSource", "DatagenStreamReader", "last_row"]

_ROWS_PER_RECORD_BATCH = 5_000

_WITHOUT_LIMIT: Final = 200_000
"""Rows of a micro-batch for which no number is set."""


class DatagenDataSource(DataSource):
    """Made-up rows as a Spark data source, streaming and batch."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "millstream-datagen"

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden ones."""
        return self._spec().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the range in the spec."""
        return DatagenBatchReader(self._spec())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches."""
        return DatagenStreamReader(self._spec())

    def _spec(self) -> DatagenSpec:
        return DatagenSpec.decode(self.options[SPEC_OPTION])


class DatagenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of rows. Positions count rows; nothing is remembered but the seed."""

    def __init__(self, spec: DatagenSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._clock = clock
        self._is_bounded = False
        self._began: tuple[float, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position that was fixed when the job's checkpoint was made."""
        return self._spec.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most `max_rows`, where the spec sets it."""
        return ReadMaxRows(self._spec.max_rows) if self._spec.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """A bounded run reads up to the last row."""
        last_row(self._spec.table, self._spec.rows)
        self._is_bounded = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself where no row has had its turn."""
        begin = Position.from_json(start)
        if begin.ended:
            return start
        first = begin.offset(QUEUE)
        until = first + (limit.max_rows if isinstance(limit, ReadMaxRows) else _WITHOUT_LIMIT)
        if not self._is_bounded:
            until = min(until, self._had_their_turn(first))
        if self._spec.rows:
            until = min(until, self._spec.rows)
        if until > first:
            return replace(begin, queues={QUEUE: until}).to_json()
        if self._is_bounded and self._spec.final_tick and first >= self._spec.rows:
            return replace(begin, ended=True).to_json()
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        return _tasks(self._spec, begin, until, ticks=until.ended and not begin.ended)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, partition)

    def _had_their_turn(self, first: int) -> int:
        now_s = self._clock()
        if self._began is None:
            self._began = (now_s, first)
        began_s, began_at = self._began
        return began_at + int((now_s - began_s) * self._spec.rows_per_s)


class DatagenBatchReader(DataSourceReader):
    """The rows between the spec's start and end, once."""

    def __init__(self, spec: DatagenSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; at least one, which may be empty."""
        spec = self._spec
        return _tasks(spec, spec.start, spec.end or spec.start, ticks=spec.final_tick) or [TopicPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, partition)


def last_row(table: str, rows: int) -> int:
    """How many rows there are in all. Raises JobError JOB_FAILED where they have no end."""
    if rows:
        return rows
    words = f"The table {table} has no end, so that a bounded run never ends."
    raise JobError("JOB_FAILED", words, remedy="Set 'number-of-rows'.")


def _tasks(spec: DatagenSpec, begin: Position, until: Position, *, ticks: bool) -> list[TopicPartition]:
    tasks = [TopicPartition(slices) for slices in divide(begin, until, spec.parallelism)]
    return [*tasks, TopicPartition((), END_OF_TIME_MS)] if ticks else tasks


def _read(spec: DatagenSpec, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r} is no partition of made-up rows")
    schema = arrow_schema(spec.schema())
    for part in partition.slices:
        for start in range(part.start, part.end, _ROWS_PER_RECORD_BATCH):
            yield _rows(spec, schema, start, min(start + _ROWS_PER_RECORD_BATCH, part.end))
    if partition.tick_ms is not None:
        yield tick_row(schema, partition.tick_ms)


def _rows(spec: DatagenSpec, schema: pa.Schema, start: int, end: int) -> pa.RecordBatch:
    arrays = [column_values(spec, place, start, end, schema.field(place).type) for place in range(len(spec.columns))]
    if spec.queues:
        arrays.append(pa.repeat(QUEUE, end - start))
    arrays.append(pa.nulls(end - start, schema.field(len(arrays)).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
