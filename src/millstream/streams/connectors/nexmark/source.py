"""Nexmark's events as rows: a table selects columns by event field names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from millstream.streams.connectors.made_rows import MadeRows, batch_of
from millstream.streams.connectors.nexmark.events import FIELDS, EventMaker
from millstream.streams.connectors.nexmark.settings import NexmarkSettings, NexmarkTimes, is_paced
from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.protocols import Offsets, SourcePartition
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.types import Schema
from millstream.streams.spark.columns.types import arrow_schema, spark_schema

__all__ = ["QUEUE", "NexmarkSource"]

QUEUE: Final = "nexmark/0"
"""The one queue of a nexmark table; its offsets are the events' numbers."""

_COUNT_OPTION: Final = "events.num"


class NexmarkSource:
    """Events that are made up. Raises JobError JOB_FAILED for a column or field that they do not have.

    Without the option 'base-time' the first event happens when a fresh job starts, which its checkpoint keeps.
    """

    def __init__(self, table: ConnectedTable, clock: Callable[[], float] = time.monotonic) -> None:
        _check_columns(table)
        # Of two options for one thing the one counts that is written.
        self._options = {name: table.options[name] for name in table.written}
        self._read = table.read
        settings = NexmarkSettings.of(
            self._options,
            period_ms=milliseconds(table.options["rate.period"]),
            disorder_ms=milliseconds(table.options["out-of-order.max-delay"]),
        )
        self._schema: pa.Schema = arrow_schema(spark_schema(Schema(table.schema.fields)))
        self._wanted = {column.name: tuple(part.name for part in column.type.fields) for column in table.columns}
        self._maker = EventMaker(settings, self._read.start_ms)
        self._times = NexmarkTimes(settings)
        turns_in = self._turns_in if is_paced(self._options) else None
        self._rows = MadeRows(table.name, QUEUE, settings.events, _COUNT_OPTION, turns_in, clock)

    def start_ms(self) -> int:
        """The time of the first event."""
        return int(self._options.get("base-time", time.time() * 1000))

    def first(self) -> Offsets:
        """Before the first event."""
        return self._rows.first()

    def latest(self) -> Offsets:
        """Behind the last event. Raises JobError JOB_FAILED where there is none."""
        return self._rows.latest()

    def end_of(self, start: Offsets, max_rows: int, target: Offsets | None) -> Offsets:
        """Where a micro-batch ends."""
        return self._rows.end_of(start, max_rows, target)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        """The tasks of a micro-batch."""
        return self._rows.partitions(start, end, self._read.parallelism)

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        """The events of one task."""
        return self._rows.batches(partition, self._batch)

    def _turns_in(self, elapsed_s: float) -> int:
        return self._times.events_until(int(elapsed_s * 1_000_000))

    def _batch(self, start: int, end: int) -> pa.RecordBatch:
        made = self._maker.columns(start, end, self._wanted)
        arrays = [values.cast(field.type) for values, field in zip(made.values(), self._schema, strict=True)]
        return batch_of(arrays, self._schema, end - start)


def _check_columns(table: ConnectedTable) -> None:
    for column in table.stored:
        if column.name not in FIELDS:
            raise _unknown(table, column.name, ", ".join(FIELDS))
        for part in column.type.fields:
            if part.name not in FIELDS[column.name]:
                raise _unknown(table, f"{column.name}.{part.name}", ", ".join(FIELDS[column.name]))


def _unknown(table: ConnectedTable, name: str, known: str) -> JobError:
    words = f"Nexmark's events have no {name}, which {table.name} declares."
    return JobError("JOB_FAILED", words, remedy=f"They have {known}.")
