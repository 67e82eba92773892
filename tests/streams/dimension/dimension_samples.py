"""Small tables for tests, and hashes that collide on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from crash.file_twins import HastyFiles

from millstream.streams.dimension.builder import Hashing, TableBuilder
from millstream.streams.dimension.index_key import IndexKey, Matches
from millstream.streams.dimension.key_hash import Hashes, KeyHash
from millstream.streams.dimension.key_values import KeyValues
from millstream.streams.dimension.table import DimensionTable

SEED = bytes(range(32))


class FewHashes:
    """Hashes of a table where many different keys agree in all bits, and others in their upper half."""

    def __init__(self, seed: bytes, columns: int) -> None:
        self._hash = KeyHash(seed, columns)

    def of(self, columns: Sequence[KeyValues]) -> Hashes:
        high, low, valid = self._hash.of(columns)
        return Hashes(high % np.uint64(2) << np.uint64(63), low % np.uint64(3), valid)


def built(
    directory: Path,
    rows: pa.RecordBatch,
    *indexes: IndexKey,
    stored: Sequence[str] | None = None,
    verify: bool = False,
    hashing: Hashing = KeyHash,
    step: int = 7,
) -> DimensionTable:
    """A table of the rows, which are added some at a time."""
    files = HastyFiles()
    builder = TableBuilder(
        directory, rows.schema, indexes, stored=stored, verify=verify, hashing=hashing, seed=SEED, files=files
    )
    for start in range(0, rows.num_rows, step):
        builder.add(rows.slice(start, step))
    builder.finish()
    return DimensionTable.open(directory, check=True, files=files, hashing=hashing)


def pairs(table: DimensionTable, found: Matches, column: str) -> list[tuple[int, object]]:
    """The probe's place and the value of the column for each match, sorted by text."""
    values = table.take(found.row, [column]).column(0).to_pylist()
    return sorted(zip(found.probe.tolist(), values, strict=True), key=repr)
