"""Indexes under way: keys of rows are sorted in bounded memory, then written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.store.files import FileLayer
from millstream.streams.dimension.hash_index import HashIndexWriter
from millstream.streams.dimension.index_key import IndexKey, IndexKind, Numbers
from millstream.streams.dimension.key_hash import Hashed, Hashes
from millstream.streams.dimension.key_terms import KeyTerms, terms_for
from millstream.streams.dimension.key_types import families_of
from millstream.streams.dimension.manifest import IndexFact
from millstream.streams.dimension.planes import PlaneWriters, unsigned_width
from millstream.streams.dimension.range_index import RangeIndexWriter, ordered_values
from millstream.streams.dimension.sorted_runs import SortedRuns

__all__ = ["HashedRows", "IndexBuilding"]

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
