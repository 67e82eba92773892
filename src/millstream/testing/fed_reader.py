"""The readers of what a test feeds: its messages, in the micro-batches that the test has cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millstream.streams.spark.columns.hidden import TICK_COLUMN
from millstream.streams.spark.source.malformed import MalformedWriter
from millstream.streams.spark.source.messages import RecordMessages
from millstream.streams.spark.source.partition import Slice, TopicPartition, divide
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.rows import RowBuilder
from millstream.streams.spark.source.spec import SourceSpec
from millstream.streams.spark.source.ticks import END_OF_TIME_MS, WAKE_TIME_MS
from millstream.testing.feed import Feed

__all__ = ["CLOCK_FILE", "QUEUE_PREFIX", "FedSpec"]

CLOCK_FILE: Final = "now"
"""Holds the processing time of the micro-batch that runs, in microseconds."""

QUEUE_PREFIX: Final = "test/"
"""Begins the name of every queue."""


@dataclass(frozen=True, slots=True)
class FedSpec:
    """One read of one table: what is read and how, and the `file` of its feed. `cut_ms` of positions counts batches."""

    source: SourceSpec
    file: str

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden ones."""
        return self.source.schema()

    def stream_reader(self) -> DataSourceStreamReader:
        """A reader of micro-batches."""
        return FedStreamReader(self)

    def batch_reader(self) -> DataSourceReader:
        """A reader of everything."""
        return FedBatchReader(self)


class FedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch after the other, then the end of time where the run ends it."""

    def __init__(self, spec: FedSpec) -> None:
        self._spec = spec

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position that was fixed when the job's checkpoint was made."""
        return self._spec.source.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """None: a test says itself where a micro-batch ends."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """All runs are bounded."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch, also of one without rows; `start` itself behind the last one."""
        begin, ends = Position.from_json(start), Feed.read(self._spec.file).ends
        if begin.ended:
            return start
        if begin.cut_ms < len(ends):
            queues = {f"{QUEUE_PREFIX}{queue}": offset for queue, offset in ends[begin.cut_ms].items()}
            return replace(begin, queues=queues, cut_ms=begin.cut_ms + 1).to_json()
        return replace(begin, ended=True).to_json() if self._spec.source.final_tick else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        write_time(self._spec, until.cut_ms)
        tasks = [TopicPartition(slices) for slices in divide(begin, until, self._spec.source.parallelism)]
        if until.ended and not begin.ended:
            return [*tasks, TopicPartition((), END_OF_TIME_MS)]
        # A silent source wakes such a job right behind its rows; here that is part of each micro-batch.
        return [*tasks, TopicPartition((), WAKE_TIME_MS)] if self._spec.source.wake_again else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read_partition(self._spec, partition, ticks=True)


class FedBatchReader(DataSourceReader):
    """Everything that was fed, once."""

    def __init__(self, spec: FedSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; at least one, which may be empty."""
        spec = self._spec.source
        write_time(self._spec, len(Feed.read(self._spec.file).ends))
        tasks = [TopicPartition(slices) for slices in divide(spec.start, spec.end or spec.start, spec.parallelism)]
        return [*tasks, TopicPartition((), END_OF_TIME_MS)] if spec.final_tick else tasks or [TopicPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read_partition(self._spec, partition, ticks=False)


def write_time(spec: FedSpec, batches: int) -> None:
    """Leave the processing time of the last of so many micro-batches where its operators look."""
    nows_us = Feed.read(spec.file).nows_us[:batches]
    if nows_us and nows_us[-1] is not None:
        path = Path(spec.file).with_name(CLOCK_FILE)
        unfinished = path.with_name(f".{CLOCK_FILE}-{Path(spec.file).name}")
        unfinished.write_text(str(nows_us[-1]))
        unfinished.replace(path)


def _read_partition(spec: FedSpec, partition: InputPartition, *, ticks: bool) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r} is no partition of a test's table")
    builder = RowBuilder(spec.source)
    feed = Feed.read(spec.file)
    for part in partition.slices:
        yield from _slice(spec, feed, builder, part, ticks=ticks)
    if partition.tick_ms is not None:
        yield builder.tick(partition.tick_ms)


def _slice(spec: FedSpec, feed: Feed, builder: RowBuilder, part: Slice, *, ticks: bool) -> Iterator[pa.RecordBatch]:
    entries = feed.entries[int(part.queue.removeprefix(QUEUE_PREFIX))][part.start : part.end]
    spool = MalformedWriter(spec.source.spool, part, keep_bodies=True)
    for is_tick, same in groupby(entries, lambda entry: entry.is_tick):
        messages = RecordMessages([entry.record() for entry in same])
        if is_tick and not ticks:
            continue
        rows, malformed = builder.rows(messages, part.queue)
        for refused in malformed:
            spool.add(messages.queue_offset(refused.position), refused.reason, messages.body(refused.position))
        if rows.num_rows:
            yield _as_ticks(rows) if is_tick else rows
    spool.finish()


def _as_ticks(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as such that only bring their event times."""
    place = rows.schema.get_field_index(TICK_COLUMN)
    ticks = pa.repeat(pa.scalar(WAKE_TIME_MS * 1000, pa.int64()), rows.num_rows).cast(rows.schema.field(place).type)
    return rows.set_column(place, rows.schema.field(place), ticks)
