"""A dimension table: rows in a directory that are found by their indexes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from millstream.streams.dimension.index_key import IndexKey, IndexKind, Matches, Numbers
from millstream.streams.errors import DimensionError

__all__ = ["DimensionTable"]


class DimensionTable:
    """A table that a builder made, open for reading; one instance serves one thread."""

    def __init__(self, directory: Path, rows: pa.RecordBatch, indexes: Sequence[IndexKey]) -> None:
        self.directory = directory
        self._rows = rows
        self.indexes = tuple(indexes)

    @classmethod
    def open(cls, directory: Path, *, check: bool = False) -> DimensionTable:
        """The table of a directory. Raises DIMENSION_DAMAGED where there is no whole one."""
        try:
            said = json.loads((directory / "manifest.json").read_text())
        except (OSError, ValueError):
            raise DimensionError("DIMENSION_DAMAGED", f"{directory} holds no whole dimension table.") from None
        with pa.memory_map(str(directory / "rows.arrow")) as source:
            rows = pa.ipc.open_file(source).read_all().combine_chunks()
        batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        return cls(directory, batches[0], [IndexKey.decoded(one) for one in said["indexes"]])

    @property
    def schema(self) -> pa.Schema:
        """The columns that `take` and `scan` give."""
        return self._rows.schema

    @property
    def rows(self) -> int:
        return int(self._rows.num_rows)

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in self.directory.iterdir())

    @property
    def bytes_per_row(self) -> float:
        return self.size_bytes / max(self.rows, 1)

    def close(self) -> None:
        """Let go of the files."""

    def find(self, key: IndexKey, probes: Sequence[pa.Array], *, longest: bool = False) -> Matches:
        """Every row that each probe matches, ordered by probe, then row. NULL matches nothing.

        `probes` are one array for each column of an EQUAL key, one array for the other kinds. `longest` keeps the rows
        of the longest network or prefix of each probe.
        """
        if key.kind is not IndexKind.EQUAL:
            raise DimensionError("DIMENSION_KEY", f"The table in {self.directory} has no index {key}.")
        rows: dict[tuple[object, ...], list[int]] = {}
        columns = [self._rows.column(name).to_pylist() for name in key.columns]
        for row, values in enumerate(zip(*columns, strict=True)):
            if None not in values:
                rows.setdefault(values, []).append(row)
        asked = zip(*(one.to_pylist() for one in probes), strict=True)
        pairs = [(place, row) for place, values in enumerate(asked) for row in rows.get(values, ())]
        found = np.array(pairs, np.int64).reshape(-1, 2)
        return Matches(found[:, 0], found[:, 1])

    def take(self, rows: Numbers, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """These rows, in that order; `columns` are all of the schema where none are named."""
        return self._rows.select(list(columns) if columns is not None else self.schema.names).take(pa.array(rows))

    def scan(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in the order of their numbers."""
        yield self._rows.select(list(columns) if columns is not None else self.schema.names)

    def add_index(self, key: IndexKey) -> None:
        """Make an index of the stored rows, for this table and all who open it later."""
        self.indexes = (*self.indexes, key)
        said = {"indexes": [one.encoded() for one in self.indexes]}
        (self.directory / "manifest.json").write_text(json.dumps(said))
