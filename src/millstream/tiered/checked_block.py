"""A block of cold records that was verified once, and where its records stand in it.

The places are packed numbers, so that they cross between processes and lie in a cache as they are, and no object is
made of a record that nobody asks for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from millstream.protocol.record import store_timestamp_ms
from millstream.store.cold_records import ColdEntry, ColdRun
from millstream.tiered.chunk import BlockInfo, decode_block
from millstream.tiered.queue_records import places_of

__all__ = ["PLACE_BYTES", "CheckedBlock", "check_block", "find_stored"]

_FIELDS: Final = 5
"""Queue offset, log offset, position in the block, tags code and messages of a record."""

_QUEUE_OFFSET, _LOG_OFFSET, _POSITION, _TAGS_CODE, _MESSAGES = range(_FIELDS)

PLACE_BYTES: Final = _FIELDS * 8
"""Bytes of the place of one record."""

_make_entry = partial(tuple.__new__, ColdEntry)
"""A named tuple's own constructor takes its fields apart and together again."""


def check_block(
    key: str, info: BlockInfo, frame: bytes, let_others_run: Callable[[], None] = lambda: None
) -> tuple[bytes, bytes]:
    """The unpacked bytes of a block, of which each record is whole, and their places. Raises CHUNK_DAMAGED.

    `let_others_run` is called between the steps of it.
    """
    records = decode_block(key, info, frame, let_others_run)
    let_others_run()
    if not records:
        return b"", b""
    raw = records[0].obj
    assert isinstance(raw, bytes)
    packed, position = array("q"), 0
    for queue_offset, log_offset, size, code, count in places_of(raw):
        packed.extend((queue_offset, log_offset, position, code, count))
        position += size
    return raw, packed.tobytes()


class CheckedBlock:
    """Records of one queue by offset; none where they are lost. `next_queue_offset` is behind the last.

    `raw` and `places` are as of `check_block`.
    """

    __slots__ = ("_count", "_places", "first_queue_offset", "next_queue_offset", "raw")

    def __init__(
        self,
        first_queue_offset: int,
        next_queue_offset: int,
        raw: bytes | memoryview = b"",
        places: bytes | memoryview = b"",
    ) -> None:
        self.first_queue_offset = first_queue_offset
        self.next_queue_offset = next_queue_offset
        self.raw = memoryview(raw)
        self._places = memoryview(places).cast("q")
        self._count = len(places) // PLACE_BYTES

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes in memory."""
        return len(self.raw) + self._places.nbytes

    @property
    def records(self) -> Sequence[memoryview]:
        """All records."""
        return [self.record(number) for number in range(self._count)]

    def record(self, number: int) -> memoryview:
        """The record of that number in the block."""
        return self.raw[self._position(number) : self._position(number + 1)]

    def entries_from(self, queue_offset: int, end: int, max_count: int) -> list[ColdEntry]:
        """At most `max_count` entries with messages from the offset to before `end`."""
        first, behind = self._find(queue_offset, end)
        behind = min(behind, first + max_count)
        view, places = self.raw, self._places
        found: list[ColdEntry] = []
        position = self._position(first)
        for at in range(first * _FIELDS, behind * _FIELDS, _FIELDS):
            following = places[at + _FIELDS + _POSITION] if at + _FIELDS < len(places) else len(view)
            entry = _make_entry(
                (places[at], places[at + _LOG_OFFSET], following - position, places[at + _TAGS_CODE],
                 places[at + _MESSAGES])
            )  # fmt: skip
            entry.record = view[position:following]
            found.append(entry)
            position = following
        return found

    def run_from(self, queue_offset: int, end: int, max_count: int, max_bytes: int) -> ColdRun | None:
        """At most `max_count` records of one message each from the offset on, whose offsets leave none out, as the
        piece in which they stand: no more than `max_bytes`, but for the first. None where that is no such record."""
        places = self._places
        first, behind = self._find(queue_offset, end)
        if first >= behind or places[first * _FIELDS] != queue_offset:
            return None
        start, behind = self._position(first), min(behind, first + max_count)
        fitting = bisect_right(
            range(first + 1, behind + 1), start + max_bytes, key=lambda number: self._position(number)
        )
        count = max(1, fitting)
        last = (first + count - 1) * _FIELDS
        if places[last] != queue_offset + count - 1 or places[last + _MESSAGES] != 1:
            return None
        stop = self._position(first + count)
        starts = places[first * _FIELDS + _POSITION : last + _FIELDS : _FIELDS].tolist()
        return ColdRun(self.raw[start:stop], [position - start for position in starts[1:]] + [stop - start])

    def find_log_offset(self, log_offset: int) -> memoryview | None:
        """The record that stood there in the log; None where none did."""
        number = bisect_left(range(self._count), log_offset, key=lambda one: self._places[one * _FIELDS + _LOG_OFFSET])
        if number == self._count or self._places[number * _FIELDS + _LOG_OFFSET] != log_offset:
            return None
        return self.record(number)

    def offset_at(self, stored_ms: int) -> int | None:
        """The offset of the first record that was stored at that time or later; None where all were before."""
        number = find_stored(self._each(), stored_ms)
        return None if number is None else self._places[number * _FIELDS]

    def _each(self) -> Iterator[memoryview]:
        return (self.record(number) for number in range(self._count))

    def _position(self, number: int) -> int:
        return self._places[number * _FIELDS + _POSITION] if number < self._count else len(self.raw)

    def _find(self, queue_offset: int, end: int) -> tuple[int, int]:
        """The number of the first record with messages from the offset on, and the number behind the last one that
        begins before `end`."""
        places, numbers = self._places, range(self._count)
        first = bisect_right(numbers, queue_offset, key=lambda one: places[one * _FIELDS] + places[one * _FIELDS + 4])
        return first, bisect_left(numbers, end, lo=first, key=lambda one: places[one * _FIELDS])


def find_stored(records: Iterator[memoryview], stored_ms: int) -> int | None:
    """The number of the first record that was stored at that time or later; None where all were before."""
    return next((number for number, record in enumerate(records) if store_timestamp_ms(record) >= stored_ms), None)
