"""Rows generated from their numbers: the base of the datagen and nexmark sources."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from millstream.streams.connectors.protocols import Offsets, SourcePartition
from millstream.streams.errors import JobError
from millstream.streams.spark.source.position import Position, divide

__all__ = ["MadeRows", "batch_of", "last_row"]


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """`count` rows of the columns; where there is none the batch has a nameless one, else it would have no rows."""
    if not arrays:
        return pa.RecordBatch.from_pydict({"": pa.nulls(count)})
    return pa.RecordBatch.from_arrays(list(arrays), schema=schema)


_ROWS_PER_RECORD_BATCH: Final = 5_000

_WITHOUT_LIMIT: Final = 200_000
"""Rows of a micro-batch for which no number is set."""


class MadeRows:
    """The offsets of a table of made-up rows, whose one `queue` counts them.

    `count` rows in all, 0 without end; `count_option` is the option that says so. Where `turns_in` is given, it says
    how many rows have had their turn in some seconds: a run without end makes no others.
    """

    def __init__(
        self,
        table: str,
        queue: str,
        count: int,
        count_option: str,
        turns_in: Callable[[float], int] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = queue
        self._table = table
        self._count = count
        self._count_option = count_option
        self._turns_in = turns_in
        self._clock = clock
        self._began: tuple[float, int] | None = None

    def first(self) -> Offsets:
        """Before the first row."""
        return {self.queue: 0}

    def latest(self) -> Offsets:
        """Behind the last row. Raises JobError JOB_FAILED where there is none, and names the option."""
        return {self.queue: last_row(self._table, self._count, self._count_option)}

    def end_of(self, start: Offsets, max_rows: int, target: Offsets | None) -> Offsets:
        """Where a micro-batch ends; a bounded run waits for no clock."""
        first = start.get(self.queue, 0)
        until = first + (max_rows or _WITHOUT_LIMIT)
        if self._turns_in is not None and target is None:
            until = min(until, self._had_their_turn(first, self._turns_in))
        if self._count:
            until = min(until, self._count)
        return {self.queue: max(first, until)}

    def partitions(self, start: Offsets, end: Offsets, parallelism: int) -> list[SourcePartition]:
        """The tasks, cut as those of a topic."""
        groups = divide(Position(dict(start)), Position(dict(end)), parallelism)
        return [SourcePartition(part.queue, part.start, part.end) for group in groups for part in group]

    def batches(
        self, partition: SourcePartition, make: Callable[[int, int], pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a task; `make` gives those from a number up to but without another."""
        for start in range(partition.start, partition.end, _ROWS_PER_RECORD_BATCH):
            yield make(start, min(start + _ROWS_PER_RECORD_BATCH, partition.end))

    def _had_their_turn(self, first: int, turns_in: Callable[[float], int]) -> int:
        now_s = self._clock()
        if self._began is None:
            self._began = (now_s, first)
        began_s, began_at = self._began
        return began_at + turns_in(now_s - began_s)


def last_row(table: str, count: int, option: str) -> int:
    """`count`, how many rows there are in all. Raises JobError JOB_FAILED where it is 0, and names the option."""
    if count:
        return count
    words = f"The table {table} has no end, so that a bounded run never ends."
    raise JobError("JOB_FAILED", words, remedy=f"Set '{option}'.")
