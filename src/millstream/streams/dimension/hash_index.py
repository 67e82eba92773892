"""A hash index, built in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.store.files import FileLayer
from millstream.streams.dimension.index_key import IndexKey, IndexKind, Matches, Numbers
from millstream.streams.dimension.key_hash import Hashed, Hashes
from millstream.streams.dimension.key_terms import KeyTerms, terms_for
from millstream.streams.dimension.key_types import families_of
from millstream.streams.dimension.key_values import Unsigned
from millstream.streams.dimension.manifest import IndexFact
from millstream.streams.dimension.planes import PlaneReader, PlaneWriter, PlaneWriters, unsigned_width
from millstream.streams.dimension.range_index import RangeIndexWriter, ordered_values
from millstream.streams.dimension.sorted_runs import SortedRuns
from millstream.streams.dimension.spans import flatten_spans

__all__ = ["HashIndexReader", "HashIndexWriter", "HashedRows", "IndexBuilding"]


_IMPLIED_BITS: Final = 16
"""Bits of a hash that its place tells, in an index of at least as many directory bits."""

_DENSE_ROWS: Final = 1_000_000
"""Up to so many entries a directory has a place for each, so that nearly every hash is found at once; above, one for
every 8 to 16, which costs a fifteenth of the memory and some steps more."""

_SPARSE_SHIFT: Final = 4
_MAX_DIRECTORY_BITS: Final = 26
_BITS: Final = 64


def _directory_bits(entries: int) -> int:
    shift = 0 if entries <= _DENSE_ROWS else _SPARSE_SHIFT
    return max(1, min(_MAX_DIRECTORY_BITS, entries.bit_length() - shift))


class HashIndexWriter:
    """Writes an index of `entries` hashes, which come in their order; `row_width` 0 says that places are rows."""

    def __init__(self, planes: PlaneWriters, name: str, entries: int, row_width: int) -> None:
        self._bits = _directory_bits(entries)
        self._implied = _IMPLIED_BITS if self._bits >= _IMPLIED_BITS else 0
        self._counts = np.zeros(1 << self._bits, np.uint32)
        self._row_width = row_width
        self._entries = entries
        self._directory = planes.make(f"{name}.directory")
        self._tags = planes.make(f"{name}.tags")
        self._checks = [planes.make(f"{name}.{part}") for part in _check_parts(self._implied)]
        self._rows: PlaneWriter | None = planes.make(f"{name}.rows") if row_width else None
        self._last_tag: int | None = None
        self._repeats = False

    def append(self, hashes: Hashes, rows: Numbers | None = None) -> None:
        """More entries, at or above those before."""
        high, low = hashes.high, hashes.low
        if not len(high):
            return
        buckets = high >> np.uint64(_BITS - self._bits)
        first = int(buckets[0])
        counts = np.bincount((buckets - np.uint64(first)).astype(np.int64))
        self._counts[first : first + len(counts)] += counts.astype(np.uint32)
        tags, checks = _tags_and_checks(high, low, self._implied)
        self._repeats |= bool((tags[1:] == tags[:-1]).any()) or self._last_tag == int(tags[0])
        self._last_tag = int(tags[-1])
        self._tags.append(tags)
        for plane, part in zip(self._checks, checks, strict=True):
            plane.append(part)
        if self._rows is not None:
            assert rows is not None
            self._rows.append(rows.astype(f"<u{self._row_width}"))

    def finish(self) -> dict[str, Any]:
        """What the manifest says of the index."""
        starts = np.zeros(len(self._counts) + 1, np.uint32)
        np.cumsum(self._counts, out=starts[1:])
        self._directory.append(starts)
        layout = {"bits": self._bits, "implied": self._implied, "row_width": self._row_width}
        return {**layout, "entries": self._entries, "repeats": self._repeats, "longest": int(self._counts.max())}


class HashIndexReader:
    """Finds entries by their hashes."""

    def __init__(self, planes: PlaneReader, name: str, said: dict[str, Any]) -> None:
        self._shift = np.uint64(_BITS - said["bits"])
        self._implied: int = said["implied"]
        self._repeats: bool = said["repeats"]
        self._steps = int(said["longest"]).bit_length()
        self._directory = planes.open(f"{name}.directory", "<u4")
        self._tags = planes.open(f"{name}.tags", "<u8")
        parts = _check_parts(self._implied)
        self._checks = [planes.open(f"{name}.{part}", f"<u{width}") for part, width in parts.items()]
        width = said["row_width"]
        self._rows = planes.open(f"{name}.rows", f"<u{width}") if width else None

    def find(self, hashes: Hashes) -> Matches:
        """Every entry of each valid hash, ordered by the hash's place; the rows of one hash ascend."""
        if not len(self._tags):
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
        tags, checks = _tags_and_checks(hashes.high, hashes.low, self._implied)
        buckets = (hashes.high >> self._shift).astype(np.int64)
        first = self._directory[buckets].astype(np.int64)
        end = self._directory[buckets + 1].astype(np.int64)
        place = self._lower(tags, first, end.copy(), above=False)
        hit = self._tags[np.minimum(place, len(self._tags) - 1)] == tags
        hit &= (place < end) & hashes.valid
        probe = np.flatnonzero(hit)
        place = place[probe]
        if self._repeats:
            probe, place = self._repeat_hits(tags, probe, place, end)
        same = np.ones(len(probe), np.bool_)
        for plane, wanted in zip(self._checks, checks, strict=True):
            same &= plane[place] == wanted[probe]
        if not same.all():
            probe, place = probe[same], place[same]
        return Matches(probe, place if self._rows is None else self._rows[place].astype(np.int64))

    def _repeat_hits(self, tags: Unsigned, probe: Numbers, place: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
        """Each hit once for every entry with its tag."""
        following = np.minimum(place + 1, len(self._tags) - 1)
        more = np.flatnonzero((self._tags[following] == tags[probe]) & (place + 1 < end[probe]))
        counts = np.ones(len(probe), np.int64)
        if len(more):
            last = self._lower(tags[probe[more]], place[more] + 1, end[probe[more]].copy(), above=True)
            counts[more] = last - place[more]
        return np.repeat(probe, counts), flatten_spans(place, counts)

    def _lower(self, tags: Unsigned, first: Numbers, end: Numbers, *, above: bool) -> Numbers:
        """The first place in [first, end) whose tag is not below the wanted one; with `above`, that is above it."""
        compare = np.less_equal if above else np.less
        open_ones: Numbers | slice = slice(None)
        for step in range(self._steps):
            low, high = first[open_ones], end[open_ones]
            middle = (low + high) >> 1
            found = self._tags[np.minimum(middle, len(self._tags) - 1)]
            smaller = compare(found, tags[open_ones]) & (low < high)
            first[open_ones] = np.where(smaller, middle + 1, low)
            end[open_ones] = np.where(smaller, high, middle)
            if step >= _STEPS_OF_ALL:
                open_ones = np.flatnonzero(first < end)
                if not len(open_ones):
                    break
        return first


_STEPS_OF_ALL: Final = 4
"""Steps that are made for all hashes at once, before those that are found already are left out."""


def _check_parts(implied: int) -> dict[str, int]:
    """The files of a check and their bytes an entry."""
    return {"checks4": 4, "checks2": 2} if implied else {"checks8": 8}


def _tags_and_checks(high: Unsigned, low: Unsigned, implied: int) -> tuple[Unsigned, list[np.ndarray]]:
    if not implied:
        return high, [low]
    shift = np.uint64(implied)
    tags = (high << shift) | (low >> np.uint64(_BITS - implied))
    checks: list[np.ndarray] = [(low >> shift).astype(np.uint32), low.astype(np.uint16)]
    return tags, checks


_ROW = pa.field("row", pa.uint32())


class HashedRows:
    """The hashes of rows for one index that is no RANGE, and the lengths of keys that were seen."""

    def __init__(self, key: IndexKey, schema: pa.Schema, hashed: Hashed) -> None:
        self.key = key
        self._hashed = hashed
        self._terms: KeyTerms = terms_for(key.kind, families_of(key, schema))
        self._lengths: set[int] = set()

    def of(self, columns: Sequence[pa.Array]) -> Hashes:
        """The hash of each row; `columns` are those of the key."""
        values, lengths = self._terms.of_rows(columns)
        if lengths is not None:
            self._lengths.update(np.unique(lengths[lengths >= 0]).tolist())
        return self._hashed.of(values)

    def fact(self, name: str, said: dict[str, Any]) -> IndexFact:
        """What the manifest says of the index."""
        return IndexFact(self.key.encode(), name, said, sorted(self._lengths))


class IndexBuilding:
    """An index beside rows that stand in another order."""

    def __init__(
        self, key: IndexKey, schema: pa.Schema, hashed: Hashed, files: FileLayer, path: Path, memory_bytes: int
    ) -> None:
        self._key = key
        self._hashing = HashedRows(key, schema, hashed) if key.kind is not IndexKind.RANGE else None
        self._runs = SortedRuns(files, path, pa.schema([_ROW]), memory_bytes)
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """The rows that follow."""
        columns = [batch.column(name) for name in self._key.columns]
        rows = np.arange(self._rows, self._rows + batch.num_rows, dtype=np.uint32)
        self._rows += batch.num_rows
        if self._hashing is None:
            (high, valid), (low, ends_valid) = (ordered_values(one) for one in columns)
            valid = valid & ends_valid
        else:
            high, low, valid = self._hashing.of(columns)
        if not valid.all():
            high, low, rows = high[valid], low[valid], rows[valid]
        self._runs.add(high, low, pa.RecordBatch.from_arrays([pa.array(rows)], [_ROW.name]))

    def finish(self, planes: PlaneWriters, name: str) -> IndexFact:
        """Writes the files of the index; what the manifest says of it."""
        width = max(1, unsigned_width(max(0, self._rows - 1)))
        writer: RangeIndexWriter | HashIndexWriter
        if self._hashing is None:
            writer = ranges = RangeIndexWriter(planes, name, width)
            for high, low, rows in self._runs.sort():
                ranges.append(high, low, _row_numbers(rows))
            return IndexFact(self._key.encode(), name, ranges.finish())
        writer = HashIndexWriter(planes, name, self._runs.rows, width)
        for high, low, rows in self._runs.sort():
            writer.append(Hashes(high, low, np.empty(0, np.bool_)), _row_numbers(rows))
        return self._hashing.fact(name, writer.finish())

    def close(self) -> None:
        """Let go of what is on the disk while the index is under way."""
        self._runs.close()


def _row_numbers(rows: pa.RecordBatch) -> Numbers:
    return np.asarray(rows.column(0).to_numpy(), np.int64)
