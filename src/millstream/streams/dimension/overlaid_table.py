"""A table with an overlay: a small table of newer rows, which hides those of the large one that they replace.

In the directory of such a version: the files of the large table, which are links to those of the version before,
`hidden` (the numbers of its rows that do not count any more, ascending), and the small table in `overlay/`. The rows of
the small one are numbered behind those of the large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from millstream.store.files import FileLayer
from millstream.streams.dimension.builder import Hashing
from millstream.streams.dimension.index_key import IndexKey, Matches, Numbers
from millstream.streams.dimension.key_hash import KeyHash
from millstream.streams.dimension.key_values import Flags
from millstream.streams.dimension.table import DimensionTable

__all__ = ["HIDDEN_NAME", "OVERLAY_NAME", "OverlaidTable", "open_version"]

HIDDEN_NAME: Final = "hidden"
OVERLAY_NAME: Final = "overlay"
_ROW: Final = "<u4"
_SCAN_ROWS: Final = 16_384


class OverlaidTable:
    """Both tables as one. One instance serves one thread."""

    def __init__(self, base: DimensionTable, overlay: DimensionTable) -> None:
        self.directory = base.directory
        self.base = base
        self.overlay = overlay
        self.hidden: Numbers = base.numbers(HIDDEN_NAME, _ROW).astype(np.int64)

    @property
    def schema(self) -> pa.Schema:
        """The columns that `take` and `scan` give."""
        return self.base.schema

    @property
    def rows(self) -> int:
        return self.base.rows - len(self.hidden) + self.overlay.rows

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return self.base.size_bytes + self.overlay.size_bytes

    @property
    def indexes(self) -> tuple[IndexKey, ...]:
        """What rows can be found by."""
        return tuple(key for key in self.base.indexes if key in self.overlay.indexes)

    def row_numbers(self) -> Numbers:
        """The numbers of all rows, ascending; those of hidden ones are left out."""
        shown = np.ones(self.base.rows, np.bool_)
        shown[self.hidden] = False
        return np.concatenate([np.flatnonzero(shown), self.base.rows + self.overlay.row_numbers()])

    def find(self, key: IndexKey, probes: Sequence[pa.Array]) -> Matches:
        """As `DimensionTable.find`: every row that each probe matches, ordered by probe, then row."""
        below = self.base.find(key, probes)
        if len(self.hidden) and len(below.row):
            shown = ~self._is_hidden(below.row)
            below = Matches(below.probe[shown], below.row[shown])
        above = self.overlay.find(key, probes)
        if not len(above.row):
            return below
        probe = np.concatenate([below.probe, above.probe])
        row = np.concatenate([below.row, above.row + self.base.rows])
        order = np.argsort(probe, kind="stable")
        return Matches(probe[order], row[order])

    def _is_hidden(self, rows: Numbers) -> Flags:
        places = np.minimum(np.searchsorted(self.hidden, rows), len(self.hidden) - 1)
        hidden: Flags = self.hidden[places] == rows
        return hidden

    def take(self, rows: Numbers, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """As `DimensionTable.take`: these rows, in that order."""
        above = rows >= self.base.rows
        if not above.any():
            return self.base.take(rows, columns)
        newer = self.overlay.take(rows[above] - self.base.rows, columns)
        if above.all():
            return newer
        older = self.base.take(rows[~above], columns)
        if not older.num_columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        places = np.where(above, np.cumsum(above) - 1 + older.num_rows, np.cumsum(~above) - 1)
        return pa.concat_batches([older, newer]).take(pa.array(places))

    def scan(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in the order of their numbers, some thousands at a time."""
        rows = self.row_numbers()
        for start in range(0, len(rows), _SCAN_ROWS):
            yield self.take(rows[start : start + _SCAN_ROWS], columns)

    def add_index(self, key: IndexKey) -> None:
        """As `DimensionTable.add_index`, of both tables."""
        for table in (self.base, self.overlay):
            if key not in table.indexes:
                table.add_index(key)

    def close(self) -> None:
        """Let go of the files; what was taken out of them stays whole."""
        self.base.close()
        self.overlay.close()


def open_version(
    directory: Path, *, check: bool = False, files: FileLayer | None = None, hashing: Hashing = KeyHash
) -> DimensionTable | OverlaidTable:
    """The table of a directory, with its overlay where it has one; arguments and errors as of `DimensionTable.open`."""
    table = DimensionTable.open(directory, check=check, files=files, hashing=hashing)
    if not table.manifest.is_overlaid:
        return table
    overlay = DimensionTable.open(directory / OVERLAY_NAME, check=check, files=files, hashing=hashing)
    return OverlaidTable(table, overlay)
