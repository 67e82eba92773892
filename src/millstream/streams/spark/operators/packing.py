"""Rows of a task packed by bucket: few large values cross the shuffle in place of many small rows.

Which partition of Spark takes a bucket: numbers that Spark's hash partitioning sends where we want them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from millstream.streams.spark.columns.rows import KIND_COLUMN
from millstream.streams.spark.operators.clocks import Seen, count_untimed, encode, look

__all__ = ["OF_EACH_ROW", "PACKED", "Packer", "place_numbers"]

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


PACKED = "place int, bucket int, number int, origin int, part int, rows binary, clocks binary"
"""Spark's schema of packed rows: where to, of which input and task, and the rows as an Arrow stream."""

OF_EACH_ROW = ("bucket", "queue", "time_us", "tick_us")
"""What comes with the columns of a row: its bucket (NULL where the row only moves event time), its queue, its event
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
        buckets: int,
        partitions: int,
        *,
        width: int,
        kinds: bool,
        source: int | None,
        timed: frozenset[int] = frozenset(),
    ) -> None:
        self._number = number
        self._buckets = buckets
        self._partitions = partitions
        self._width = width
        self._kinds = kinds
        self._source = source
        self._timed = timed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        origin = context.partitionId() if context is not None else 0
        seen: dict[int, Seen] = {}
        waiting: list[list[pa.RecordBatch]] = [[] for _ in range(self._buckets)]
        rows = part = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            look(batch, seen, self._source)
            count_untimed(batch, seen, self._timed, self._source)
            rows += self._divide(batch, waiting)
            if rows >= MAX_PACKED_ROWS:
                yield self._pack(waiting, origin, part, b"")
                waiting = [[] for _ in range(self._buckets)]
                rows, part = 0, part + 1
        clocks = encode(seen)
        if rows or clocks:
            yield self._pack(waiting, origin, part, clocks)

    def _divide(self, batch: pa.RecordBatch, waiting: Sequence[list[pa.RecordBatch]]) -> int:
        """Put the rows that are data to their buckets; how many they are."""
        if batch.column("bucket").null_count:
            batch = batch.filter(pc.is_valid(batch.column("bucket")))
        if batch.num_rows == 0:
            return 0
        kinds = batch.column("kind") if self._kinds else pa.nulls(batch.num_rows, pa.int8())
        names = [*batch.schema.names[: self._width], KIND_COLUMN]
        rows = pa.RecordBatch.from_arrays([*batch.columns[: self._width], kinds], names=names)
        numbers = batch.column("bucket").to_numpy()
        counts = np.bincount(numbers, minlength=self._buckets)
        sorted_rows = rows if counts.max() == len(numbers) else rows.take(pa.array(np.argsort(numbers, kind="stable")))
        start = 0
        for bucket, count in enumerate(counts.tolist()):
            if count:
                waiting[bucket].append(sorted_rows.slice(start, count))
                start += count
        return len(numbers)

    def _pack(self, waiting: Sequence[list[pa.RecordBatch]], origin: int, part: int, clocks: bytes) -> pa.RecordBatch:
        """One row per bucket that gets anything; event time goes to all of them."""
        places = place_numbers(self._partitions)
        packed = [
            (places[bucket % self._partitions], bucket, self._number, origin, part, _stream(parts), clocks)
            for bucket, parts in enumerate(waiting)
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
