"""Rows packed by the task that takes them: few large values cross the shuffle in place of many small rows.

Which partition of Spark a task is: numbers that Spark's hash partitioning sends where we want them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from millstream.streams.operators.key_groups import KeyGroups
from millstream.streams.spark.columns.rows import KIND_COLUMN
from millstream.streams.spark.operators.clocks import Seen, count_untimed, encode, look

__all__ = ["GROUP_COLUMN", "OF_EACH_ROW", "PACKED", "Packer", "place_numbers"]

_SEED = 42
"""Spark's seed for hash partitioning."""

_MASK = 0xFFFFFFFF
_SEARCHED = 100_000


@cache
def place_numbers(partitions: int) -> tuple[int, ...]:
    """For each partition an INT whose hash (Murmur3 over 32 bits, as in Spark) leads there."""
    found: dict[int, int] = {}
    for number in range(_SEARCHED):
        found.setdefault(_murmur3(number) % partitions, number)
        if len(found) == partitions:
            return tuple(found[place] for place in range(partitions))
    raise ValueError(f"no numbers for {partitions} partitions")


def _murmur3(number: int) -> int:
    """Murmur3_x86_32 of one 32-bit word, as a signed number."""
    mixed = number * 0xCC9E2D51 & _MASK
    mixed = _rotate(mixed, 15) * 0x1B873593 & _MASK
    value = _rotate(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


GROUP_COLUMN = "__group"
"""The last column of packed rows: the key group of each."""

PACKED = "place int, task int, number int, origin int, part int, rows binary, clocks binary"
"""Spark's schema of packed rows: where to, of which input and task, and the rows as an Arrow stream."""

OF_EACH_ROW = ("key_group", "queue", "time_us", "tick_us")
"""What comes with the columns of a row: its key group (NULL where the row only moves event time), its queue, its event
time less its delay, and a tick. Each column more has a price a row, so that what is the same for all rows is none."""

MAX_PACKED_ROWS = 100_000
"""Rows that a task keeps before it hands them on."""

_NAMES = [column.split()[0] for column in PACKED.split(", ")]
_TYPES = [pa.int32()] * 5 + [pa.binary(), pa.binary()]


class Packer:
    """The function of a packing stage, for input `number` of an operator.

    Its input has `width` columns of the rows, then those of `OF_EACH_ROW`; with `kinds` a column `kind`, else all rows
    come; without `source`, which is the number of the clock of all rows, a column `source`. Rows without event time of
    the sources that are `timed` are counted.
    """

    def __init__(
        self,
        number: int,
        groups: KeyGroups,
        *,
        width: int,
        kinds: bool,
        source: int | None,
        timed: frozenset[int] = frozenset(),
    ) -> None:
        self._number = number
        self._groups = groups
        self._width = width
        self._kinds = kinds
        self._source = source
        self._timed = timed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        origin = context.partitionId() if context is not None else 0
        seen: dict[int, Seen] = {}
        waiting: list[list[pa.RecordBatch]] = [[] for _ in range(self._groups.tasks)]
        rows = part = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            look(batch, seen, self._source)
            count_untimed(batch, seen, self._timed, self._source)
            rows += self._divide(batch, waiting)
            if rows >= MAX_PACKED_ROWS:
                yield self._pack(waiting, origin, part, b"")
                waiting = [[] for _ in range(self._groups.tasks)]
                rows, part = 0, part + 1
        clocks = encode(seen)
        if rows or clocks:
            yield self._pack(waiting, origin, part, clocks)

    def _divide(self, batch: pa.RecordBatch, waiting: Sequence[list[pa.RecordBatch]]) -> int:
        """Put the rows that are data to their tasks; how many they are."""
        if batch.column("key_group").null_count:
            batch = batch.filter(pc.is_valid(batch.column("key_group")))
        if batch.num_rows == 0:
            return 0
        kinds = batch.column("kind") if self._kinds else pa.nulls(batch.num_rows, pa.int8())
        groups = batch.column("key_group").cast(pa.int16())
        names = [*batch.schema.names[: self._width], KIND_COLUMN, GROUP_COLUMN]
        rows = pa.RecordBatch.from_arrays([*batch.columns[: self._width], kinds, groups], names=names)
        tasks = self._groups.task_of(batch.column("key_group").to_numpy().astype(np.int64))
        counts = np.bincount(tasks, minlength=self._groups.tasks)
        sorted_rows = rows if counts.max() == len(tasks) else rows.take(pa.array(np.argsort(tasks, kind="stable")))
        start = 0
        for task, count in enumerate(counts.tolist()):
            if count:
                waiting[task].append(sorted_rows.slice(start, count))
                start += count
        return len(tasks)

    def _pack(self, waiting: Sequence[list[pa.RecordBatch]], origin: int, part: int, clocks: bytes) -> pa.RecordBatch:
        """One row per task that gets anything; event time goes to all of them."""
        places = place_numbers(self._groups.tasks)
        packed = [
            (places[task], task, self._number, origin, part, _stream(parts), clocks)
            for task, parts in enumerate(waiting)
            if parts or clocks
        ]
        columns = zip(*packed, strict=True)
        arrays = [pa.array(values, of) for values, of in zip(columns, _TYPES, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=_NAMES)


def _stream(parts: Sequence[pa.RecordBatch]) -> bytes | None:
    if not parts:
        return None
    out = io.BytesIO()
    with pa.ipc.new_stream(out, parts[0].schema) as writer:
        for part in parts:
            writer.write_batch(part)
    return out.getvalue()
