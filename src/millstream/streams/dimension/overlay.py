"""An incremental version of a table: newer rows over the files of the previous version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from millstream.store.files import FileLayer, SharedFiles
from millstream.streams.dimension.builder import BuiltTable, Hashing, TableBuilder
from millstream.streams.dimension.index_key import IndexKey, Matches, Numbers
from millstream.streams.dimension.key_hash import KeyHash
from millstream.streams.dimension.key_values import Flags
from millstream.streams.dimension.manifest import TableManifest
from millstream.streams.dimension.planes import PlaneWriters
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.errors import DimensionError

__all__ = [
    "HIDDEN_NAME",
    "LEAST_MERGED",
    "MAX_OVERLAY_ROWS",
    "MAX_OVERLAY_SHARE",
    "OVERLAY_NAME",
    "OverlaidTable",
    "OverlayWriter",
    "SearchableTable",
    "TableChanges",
    "open_version",
    "takes_changes",
]


MAX_OVERLAY_ROWS: Final = 250_000
"""Rows that an overlay has or hides at most; beyond, it and the table below become one. Each version writes its overlay
again, some microseconds a row."""

MAX_OVERLAY_SHARE: Final = 0.1
"""Part of the table below that an overlay may have or hide."""

LEAST_MERGED: Final = 1_000
"""Rows up to which an overlay stays one, however small the table below is."""


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What became of a table: the primary keys that changed, once each, and the rows that those of them have now."""

    keys: pa.RecordBatch
    rows: pa.RecordBatch


def takes_changes(table: DimensionTable | OverlaidTable, primary: IndexKey) -> bool:
    """Whether changes can be laid on a table: it is found by `primary`, and has stored all that it was made of."""
    base = table.base if isinstance(table, OverlaidTable) else table
    return primary in table.indexes and set(base.schema.names) == set(base.types.names)


class OverlayWriter:
    """Writes the version in `directory` that follows the one in `before`, whose rows have the key `primary`.

    `indexes` are what its rows are to be found by. `most_rows` says when both tables become one; `hashing`, `files` and
    `memory_mb` are those of `TableBuilder`. Raises DimensionError as that and `DimensionTable` do.
    """

    def __init__(
        self,
        directory: Path,
        before: Path,
        primary: IndexKey,
        indexes: Sequence[IndexKey],
        *,
        most_rows: int | None = None,
        memory_mb: int = 256,
        hashing: Hashing = KeyHash,
        files: FileLayer | None = None,
    ) -> None:
        self._files = files or SharedFiles()
        self._hashing = hashing
        self._memory_mb = memory_mb
        self._directory = directory
        self._before = open_version(before, files=self._files, hashing=hashing)
        self._base = self._before.base if isinstance(self._before, OverlaidTable) else self._before
        self._primary = primary
        self._indexes = tuple(dict.fromkeys((*self._base.indexes, *indexes, primary)))
        self._most_rows = most_rows

    @property
    def most_rows(self) -> int:
        """Rows that the overlay may have or hide."""
        if self._most_rows is not None:
            return self._most_rows
        return min(MAX_OVERLAY_ROWS, max(LEAST_MERGED, int(self._base.rows * MAX_OVERLAY_SHARE)))

    def write(self, changes: TableChanges) -> BuiltTable:
        """The version with the changes in it."""
        keys = [changes.keys.column(name) for name in self._primary.columns]
        hidden = np.unique(self._base.find(self._primary, keys).row)
        newer = changes.rows.select(self._base.types.names).cast(self._base.types)
        kept: Numbers = np.empty(0, np.int64)
        if isinstance(self._before, OverlaidTable):
            hidden = np.union1d(hidden, self._before.hidden)
            outdated = self._before.overlay.find(self._primary, keys).row
            kept = np.setdiff1d(self._before.overlay.row_numbers(), outdated)
        if len(hidden) + len(kept) + newer.num_rows > self.most_rows:
            return self._build_table(self._directory, self._all_rows(hidden, kept, newer))
        return self._write_overlay(hidden, self._overlay_rows(kept, newer))

    def _all_rows(self, hidden: Numbers, kept: Numbers, newer: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        shown = np.ones(self._base.rows, np.bool_)
        shown[hidden] = False
        start = 0
        for batch in self._base.scan():
            yield batch.filter(pa.array(shown[start : start + batch.num_rows]))
            start += batch.num_rows
        yield from self._overlay_rows(kept, newer)

    def _overlay_rows(self, kept: Numbers, newer: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if isinstance(self._before, OverlaidTable) and len(kept):
            yield self._before.overlay.take(kept)
        yield newer

    def _build_table(self, directory: Path, rows: Iterator[pa.RecordBatch]) -> BuiltTable:
        schema, verify = self._base.types, self._base.manifest.verify
        builder = TableBuilder(
            directory, schema, self._indexes, memory_mb=self._memory_mb, verify=verify, hashing=self._hashing,
            files=self._files,
        )  # fmt: skip
        try:
            for batch in rows:
                builder.add(batch)
            return builder.finish()
        except BaseException:
            builder.abandon()
            raise

    def _write_overlay(self, hidden: Numbers, rows: Iterator[pa.RecordBatch]) -> BuiltTable:
        try:
            base = self._link_files(hidden)
        except OSError as error:
            words = f"The dimension table in {self._directory} cannot be written: {error.strerror or error}."
            raise DimensionError("DIMENSION_NOT_WRITABLE", words) from None
        overlay = self._build_table(self._directory / OVERLAY_NAME, rows)
        if set(self._indexes) > set(self._base.indexes):
            below = DimensionTable.open(self._directory, files=self._files, hashing=self._hashing)
            for key in self._indexes:
                if key not in below.indexes:
                    below.add_index(key, memory_mb=self._memory_mb)
            base = below.manifest
        count = self._base.rows - len(hidden) + overlay.rows
        changed = len(hidden) + overlay.rows
        return BuiltTable(self._directory, count, base.size_bytes + overlay.size_bytes, changed)

    def _link_files(self, hidden: Numbers) -> TableManifest:
        """The files of the table below under names in the new directory, and what of it is hidden."""
        manifest = self._base.manifest
        for name in manifest.files:
            if name != HIDDEN_NAME:
                self._files.link(self._base.directory / name, self._directory / name)
        planes = PlaneWriters(self._files, self._directory)
        try:
            planes.make(HIDDEN_NAME).append(hidden.astype("<u4"))
            facts = planes.finish()
        finally:
            planes.close()
        below = manifest.overlaid(facts)
        below.write(self._files, self._directory)
        return below


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
        """Close the files; what was taken out of them stays whole."""
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


class SearchableTable(Protocol):
    """Rows with numbers, found by indexes; see `DimensionTable` for what each call raises."""

    @property
    def directory(self) -> Path:
        """Where its files are."""
        ...

    @property
    def rows(self) -> int:
        """How many there are."""
        ...

    @property
    def indexes(self) -> tuple[IndexKey, ...]:
        """What rows can be found by."""
        ...

    def row_numbers(self) -> Numbers:
        """The numbers of all rows, ascending; there may be gaps."""
        ...

    def find(self, key: IndexKey, probes: Sequence[pa.Array]) -> Matches:
        """Every row that each probe matches, ordered by probe, then row."""
        ...

    def take(self, rows: Numbers, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """These rows, in that order."""
        ...

    def add_index(self, key: IndexKey) -> None:
        """Make an index of stored rows, for all who ask this version."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...
