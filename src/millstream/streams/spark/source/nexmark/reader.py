"""`spark.readStream.format("nexmark")`: nexmark's events in micro-batches, and once as a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millstream.streams.errors import JobError
from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.nexmark.events import EventMaker
from millstream.streams.spark.source.nexmark.spec import QUEUE, NexmarkSpec
from millstream.streams.spark.source.nexmark.times import EventTimes
from millstream.streams.spark.source.partition import TopicPartition, divide
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.reader import END_OF_TIME_MS
from millstream.streams.spark.source.rows import tick_row
from millstream.streams.spark.types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NexmarkBatchReader", "NexmarkDataSource", "NexmarkStreamReader", "last_event"]

_ROWS_PER_RECORD_BATCH = 5_000
_WITHOUT_LIMIT = 200_000
"""Events of a micro-batch of an endless table for which no number is set."""


class NexmarkDataSource(DataSource):
    """The auction house as a Spark data source, streaming and batch."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "nexmark"

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden ones."""
        return self._spec().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the range in the spec."""
        return NexmarkBatchReader(self._spec())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches."""
        return NexmarkStreamReader(self._spec())

    def _spec(self) -> NexmarkSpec:
        return NexmarkSpec.decode(self.options[SPEC_OPTION])


class NexmarkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of events. Positions count events; nothing is remembered but the seed."""

    def __init__(self, spec: NexmarkSpec) -> None:
        self._spec = spec
        self._is_bounded = False
        self._began: tuple[float, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position that was fixed when the job's checkpoint was made."""
        return self._spec.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most `max_rows`, where the spec sets it."""
        return ReadMaxRows(self._spec.max_rows) if self._spec.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """A bounded run reads up to the last event."""
        last_event(self._spec)
        self._is_bounded = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself where no event has had its turn."""
        begin = Position.from_json(start)
        if begin.ended:
            return start
        first = begin.offset(QUEUE)
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else _WITHOUT_LIMIT
        until = first + room
        if self._spec.is_limited:
            until = min(until, self._had_their_turn(first))
        if self._spec.settings.events:
            until = min(until, self._spec.settings.events)
        if until > first:
            return replace(begin, queues={QUEUE: until}).to_json()
        if self._is_bounded and self._spec.final_tick and first >= self._spec.settings.events:
            return replace(begin, ended=True).to_json()
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        return _tasks(begin, until, self._spec, ticks=until.ended and not begin.ended)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one task; runs in a worker."""
        return _read(self._spec, partition)

    def _had_their_turn(self, first: int) -> int:
        now_s = time.monotonic()
        if self._began is None:
            self._began = (now_s, first)
        began_s, began_at = self._began
        return began_at + EventTimes(self._spec.settings).events_until(int((now_s - began_s) * 1_000_000))


class NexmarkBatchReader(DataSourceReader):
    """The events between the spec's start and end, once."""

    def __init__(self, spec: NexmarkSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, cut as those of a micro-batch over the same range; at least one, which may be empty."""
        end = self._spec.end or self._spec.start
        return _tasks(self._spec.start, end, self._spec, ticks=self._spec.final_tick) or [TopicPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one task; runs in a worker."""
        return _read(self._spec, partition)


def last_event(spec: NexmarkSpec) -> int:
    """How many events there are in all. Raises JobError JOB_FAILED where they have no end."""
    if spec.settings.events:
        return spec.settings.events
    words = f"The table {spec.table} has no end, so that a bounded run never ends."
    raise JobError("JOB_FAILED", words, remedy="Set 'events.num'.")


def _tasks(begin: Position, until: Position, spec: NexmarkSpec, *, ticks: bool) -> list[TopicPartition]:
    tasks = [TopicPartition(slices) for slices in divide(begin, until, spec.parallelism)]
    return [*tasks, TopicPartition((), END_OF_TIME_MS)] if ticks else tasks


def _read(spec: NexmarkSpec, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r} is no partition of events")
    schema = arrow_schema(spec.schema())
    maker = EventMaker(spec.settings, spec.base_time_ms)
    wanted = {column.name: tuple(part.name for part in column.type.fields) for column in spec.columns}
    for part in partition.slices:
        for start in range(part.start, part.end, _ROWS_PER_RECORD_BATCH):
            end = min(start + _ROWS_PER_RECORD_BATCH, part.end)
            yield _rows(maker.columns(start, end, wanted), schema, end - start, queues=spec.queues)
    if partition.tick_ms is not None:
        yield tick_row(schema, partition.tick_ms)


def _rows(made: Mapping[str, pa.Array], schema: pa.Schema, count: int, *, queues: bool) -> pa.RecordBatch:
    arrays = [values.cast(schema.field(number).type) for number, values in enumerate(made.values())]
    if queues:
        arrays.append(pa.repeat(QUEUE, count))
    arrays.append(pa.nulls(count, schema.field(len(arrays)).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
