"""Rows that are made up by number, in micro-batches and once as a batch: what datagen and nexmark share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from millstream.streams.errors import JobError
from millstream.streams.spark.source.partition import TopicPartition, divide
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.rows import tick_row
from millstream.streams.spark.source.ticks import END_OF_TIME_MS, tick_between
from millstream.streams.spark.types import arrow_schema

__all__ = ["Arrays", "MadeBatchReader", "MadeSpec", "MadeStreamReader", "last_row"]

_ROWS_PER_RECORD_BATCH = 5_000

_WITHOUT_LIMIT: Final = 200_000
"""Rows of a micro-batch for which no number is set."""

Arrays = Callable[[int, int], Sequence[pa.Array]]
"""The columns of the rows from a number up to but without another one."""


Maker = Callable[[Any, pa.Schema], Arrays]
"""Of a spec and the types of its columns: what makes them."""


class MadeSpec(Protocol):
    """One read of a table whose rows are made up, as in `SourceSpec`. Its one queue is `queue`."""

    @property
    def table(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def start(self) -> Position: ...
    @property
    def end(self) -> Position | None: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def final_tick(self) -> bool: ...
    @property
    def queues(self) -> bool: ...

    @property
    def count(self) -> int:
        """Rows in all, 0 without end."""
        ...

    @property
    def count_option(self) -> str:
        """The option of the table that says how many rows there are."""
        ...

    def waits(self, *, bounded: bool) -> bool:
        """Whether rows have their turn by the clock."""
        ...

    def had_their_turn(self, elapsed_s: float) -> int:
        """How many rows come in that time."""
        ...

    def schema(self) -> spark.StructType:
        """Spark's schema of the rows with the hidden columns."""
        ...


class MadeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of rows. Positions count rows; nothing is remembered but what the spec says."""

    def __init__(self, spec: MadeSpec, maker: Maker, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._maker = maker
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
        last_row(self._spec.table, self._spec.count, self._spec.count_option)
        self._is_bounded = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself where no row has had its turn."""
        spec, begin = self._spec, Position.from_json(start).going_on()
        first = begin.offset(spec.queue)
        until = first + (limit.max_rows if isinstance(limit, ReadMaxRows) else _WITHOUT_LIMIT)
        if spec.waits(bounded=self._is_bounded):
            until = min(until, self._had_their_turn(first))
        if spec.count:
            until = min(until, spec.count)
        if until > first:
            return replace(begin, queues={spec.queue: until}).to_json()
        if self._is_bounded and spec.final_tick and first >= spec.count:
            return replace(begin, ended=True).to_json()
        return begin.to_json() if Position.from_json(start).ended else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        return _tasks(self._spec, begin, until, tick_between(begin, until))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, self._maker, partition)

    def _had_their_turn(self, first: int) -> int:
        now_s = self._clock()
        if self._began is None:
            self._began = (now_s, first)
        began_s, began_at = self._began
        return began_at + self._spec.had_their_turn(now_s - began_s)


class MadeBatchReader(DataSourceReader):
    """The rows between the spec's start and end, once."""

    def __init__(self, spec: MadeSpec, maker: Maker) -> None:
        self._spec = spec
        self._maker = maker

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, cut as those of a micro-batch over the same range; at least one, which may be empty."""
        spec = self._spec
        tick_ms = END_OF_TIME_MS if spec.final_tick else None
        return _tasks(spec, spec.start, spec.end or spec.start, tick_ms) or [TopicPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, self._maker, partition)


def last_row(table: str, count: int, option: str) -> int:
    """`count`, how many rows there are in all. Raises JobError JOB_FAILED where it is 0, and names the option."""
    if count:
        return count
    words = f"The table {table} has no end, so that a bounded run never ends."
    raise JobError("JOB_FAILED", words, remedy=f"Set '{option}'.")


def _tasks(spec: MadeSpec, begin: Position, until: Position, tick_ms: int | None) -> list[TopicPartition]:
    tasks = [TopicPartition(slices) for slices in divide(begin, until, spec.parallelism)]
    return tasks if tick_ms is None else [*tasks, TopicPartition((), tick_ms)]


def _read(spec: MadeSpec, maker: Maker, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r} is no partition of made-up rows")
    schema = arrow_schema(spec.schema())
    make = maker(spec, schema)
    for part in partition.slices:
        for start in range(part.start, part.end, _ROWS_PER_RECORD_BATCH):
            end = min(start + _ROWS_PER_RECORD_BATCH, part.end)
            yield _with_hidden(spec, list(make(start, end)), schema, end - start)
    if partition.tick_ms is not None:
        yield tick_row(schema, partition.tick_ms)


def _with_hidden(spec: MadeSpec, arrays: list[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    if spec.queues:
        arrays.append(pa.repeat(spec.queue, count))
    arrays.append(pa.nulls(count, schema.field(len(arrays)).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
