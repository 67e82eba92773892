"""Which records outlive a compaction: the last one of each key, found with a bounded number of keys in memory.

The keys are taken in ranges of their hashes. A pass keeps the last record of every key of its range; when it meets too
many, it gives the upper half of the range to the next pass. So memory is bounded, and time grows by a look at the
rows (not at the records) for each further pass.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from millstream.store.compaction.row import HASH_OF_ROW, LOST_KEY, ROW_BYTES

__all__ = ["MAX_KEYS_IN_MEMORY", "Survivors"]

MAX_KEYS_IN_MEMORY = 262_144
"""Keys that one pass holds: about 40 MB."""


class Survivors:
    """Which rows of the generation before (`keep_old`) and of the new ones (`keep_new`) stay: one byte a row."""

    def __init__(self, old_rows: memoryview, new_rows: memoryview, max_keys: int = MAX_KEYS_IN_MEMORY) -> None:
        self.keep_old = bytearray(b"\1" * (len(old_rows) // ROW_BYTES))
        self.keep_new = bytearray(len(new_rows) // ROW_BYTES)
        self.passes = 0
        self._old_rows = old_rows
        self._new_rows = new_rows
        self._max_keys = max(max_keys, 1)

    def choose(self, chunk_rows: int) -> Generator[int]:
        """Fill both; after at most `chunk_rows` rows each, yields the number of rows looked at."""
        low: bytes | None = b""
        while low is not None:
            low = yield from self._choose_from(low, chunk_rows)
            self.passes += 1

    def _choose_from(self, low: bytes, chunk_rows: int) -> Generator[int, None, bytes | None]:
        """One pass over the hashes from `low` on; where the next one starts, or None behind the last."""
        high: bytes | None = None
        last: dict[bytes, int] = {}
        for first, hashes in _hashes(self._new_rows, chunk_rows):
            for number, (key,) in enumerate(hashes, start=first):
                if key < low or (high is not None and key >= high):
                    continue
                if key == LOST_KEY:
                    self.keep_new[number] = 1
                    continue
                last[key] = number
                if len(last) > self._max_keys:
                    high = sorted(last)[len(last) // 2]
                    last = {key: number for key, number in last.items() if key < high}
            yield number + 1 - first
        for number in last.values():
            self.keep_new[number] = 1
        for first, hashes in _hashes(self._old_rows, chunk_rows):
            for number, (key,) in enumerate(hashes, start=first):
                if key in last:
                    self.keep_old[number] = 0
            yield number + 1 - first
        return high


def _hashes(rows: memoryview, chunk_rows: int) -> Iterator[tuple[int, Iterator[tuple[bytes]]]]:
    chunk_bytes = chunk_rows * ROW_BYTES
    for start in range(0, len(rows), chunk_bytes):
        yield start // ROW_BYTES, HASH_OF_ROW.iter_unpack(rows[start : start + chunk_bytes])
