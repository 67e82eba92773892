"""Packs hits into records of up to 1,000 rows, by the queue of their key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.rules.packed.record import MAX_ROWS, RowsHead, pack
from millstream.streams.rules.packed.rows import Merge, groups_of, merge_rows
from millstream.streams.rules.rule import MeasureKind

__all__ = ["KEYS", "MAX_RECORD_BYTES", "OFFSET", "QUEUE", "TOLD", "HitsPacker", "PackedColumns", "PackedRecord"]

KEYS: Final = ("rule", "group_key")
"""The columns by which hits are grouped: those of a key go to one queue."""

TOLD: Final = (
    "title", "level", "kind", "author", "license", "tags", "version", "measure", "window_ms", "at_least", "at_most",
    "lower", "upper", "other_than", "bounds", "holds", "steps",
)  # fmt: skip
"""Columns that tell of the rule: within a micro-batch, which one version judges, a rule has one value of each."""

QUEUE: Final = "__source_queue"
"""The queue of the source that a hit comes from."""

OFFSET: Final = "__source_offset"
"""Where in it the event lies."""

MAX_RECORD_BYTES: Final = 2 * 2**20
"""Rows that take more before they are compressed become several records, if they are several: messages have a limit."""

_SLOT: Final = "__slot"
_TIME: Final = "event_time"
_HITS: Final = "hits"
_COUNTS, _ROWS = "counts", "rows"

_QUARTER_MS: Final = 15 * 60_000
"""Windows may begin at midnight of any time zone, and zones differ by quarters of an hour."""


class PackedColumns(msgspec.Struct, frozen=True):
    """What travels: the columns that are read at the other end; with `merges` hits that only count become one row.

    Those are the hits of a rule that counts events, of one key, within a slot that divides each of the rule's windows.
    """

    wanted: tuple[str, ...]
    merges: bool

    @classmethod
    def of(cls, read: Sequence[str]) -> PackedColumns:
        """For a reader of those columns; it has asked for merged hits where it reads how many hits a row is."""
        mergeable = {*KEYS, *TOLD, _TIME, _HITS, "measured"}
        return cls(tuple(read), _HITS in read and mergeable.issuperset(read))

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns that the packer has to be given, beside `QUEUE` and `OFFSET`."""
        beside = (*KEYS, *(("measure", "window_ms", _TIME) if self.merges else ()))
        return tuple(dict.fromkeys((*self.wanted, *beside)))


class PackedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record for the queue `into` of the topic, and where it stands among those of its micro-batch."""

    into: str
    place: tuple[str, int, int, str]
    text: bytes


class _Waiting:
    """Rows of one shape, source queue and target that are too few for a record yet."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.numbers = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows

    def take(self, *, all_rows: bool) -> Iterator[pa.RecordBatch]:
        """Full records' rows; with `all_rows` the rest too."""
        if not self.rows or (self.rows < MAX_ROWS and not all_rows):
            return
        whole = pa.Table.from_batches(self.batches).combine_chunks().to_batches()[0]
        end = whole.num_rows if all_rows else whole.num_rows - whole.num_rows % MAX_ROWS
        rest = whole.slice(end)
        self.batches, self.rows = ([rest], rest.num_rows) if rest.num_rows else ([], 0)
        for start in range(0, end, MAX_ROWS):
            yield from _small_enough(whole.slice(start, min(MAX_ROWS, end - start)))


class HitsPacker:
    """Packs the hits of one task, which come in the order of their source's queues, for the topic's queues `into`.

    `head` has what all records of the task share.
    """

    def __init__(self, columns: PackedColumns, into: Sequence[str], head: RowsHead) -> None:
        self._columns = columns
        self._into = tuple(into)
        self._head = head
        self._waiting: dict[tuple[str, str, str], _Waiting] = {}

    def add(self, rows: pa.RecordBatch) -> Iterator[PackedRecord]:
        """Take hits; the records that are full."""
        for shape, part in self._shapes(rows):
            targets = self._targets(part)
            sources = part.column(QUEUE)
            firsts, groups = groups_of([sources, pa.array(targets)])
            for number, first in enumerate(firsts.tolist()):
                key = (shape, sources[first].as_py(), self._into[targets[first]])
                waiting = self._waiting.setdefault(key, _Waiting())
                waiting.add(part.filter(pa.array(groups == number)))
                yield from self._records(key, waiting, all_rows=False)

    def finish(self) -> Iterator[PackedRecord]:
        """The records of what is left."""
        for key, waiting in self._waiting.items():
            yield from self._records(key, waiting, all_rows=True)

    def _shapes(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not self._columns.merges:
            yield _ROWS, rows
            return
        counted = pc.fill_null(pc.equal(rows.column("measure"), MeasureKind.EVENTS.value), False)
        for shape, chosen in ((_COUNTS, counted), (_ROWS, pc.invert(counted))):
            part = rows.filter(chosen)
            if part.num_rows:
                yield shape, part

    def _targets(self, rows: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """The number of the queue that each row's key has."""
        firsts, groups = groups_of([rows.column(name) for name in KEYS])
        keys = rows.select(list(KEYS)).take(pa.array(firsts)).to_pylist()
        texts = ("\0".join(key[name] or "" for name in KEYS) for key in keys)
        hashed = np.array([crc32(text.encode()) % len(self._into) for text in texts], np.int64)
        return hashed[groups] if len(keys) else np.zeros(0, np.int64)

    def _records(self, key: tuple[str, str, str], waiting: _Waiting, *, all_rows: bool) -> Iterator[PackedRecord]:
        shape, source, into = key
        for rows in waiting.take(all_rows=all_rows):
            offsets = rows.column(OFFSET)
            times = rows.column(_TIME).cast(pa.int64()) if _TIME in rows.schema.names else pa.nulls(0, pa.int64())
            head = msgspec.structs.replace(
                self._head,
                queue=source,
                shape=shape,
                first=pc.min(offsets).as_py(),
                last=pc.max(offsets).as_py(),
                number=waiting.numbers,
                rows=rows.num_rows,
                newest_us=pc.max(times).as_py(),
            )
            waiting.numbers += 1
            place = (source, head.last, head.number, shape)
            yield PackedRecord(into, place, self._pack(head, rows))

    def _pack(self, head: RowsHead, rows: pa.RecordBatch) -> bytes:
        if head.shape == _COUNTS:
            rows = _merge_counts(rows)
        kept = rows.select([name for name in rows.schema.names if name in self._columns.wanted or name in KEYS])
        return pack(head, kept, KEYS, TOLD)


def _small_enough(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if rows.nbytes <= MAX_RECORD_BYTES or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _small_enough(rows.slice(0, half))
    yield from _small_enough(rows.slice(half))


def _merge_counts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """One row for each key and slot: how many hits, and their newest time, which is in the same windows."""
    lengths = rows.column("window_ms").to_numpy(zero_copy_only=False)
    slots_us = np.array([math.gcd(int(length), _QUARTER_MS) * 1000 for length in lengths], np.int64)
    slots = rows.column(_TIME).cast(pa.int64()).to_numpy(zero_copy_only=False) // slots_us
    rows = rows.append_column(_SLOT, pa.array(slots))
    beside = [name for name in (*TOLD, "measured") if name in rows.schema.names]
    return merge_rows(rows, (*KEYS, _SLOT), {_HITS: Merge.SUM, _TIME: Merge.MAX}, beside)
