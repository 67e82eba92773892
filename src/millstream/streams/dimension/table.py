"""A dimension table: rows in a directory, found through indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from millstream.store.files import FileLayer, SharedFiles
from millstream.streams.dimension.builder import SPILL_SUFFIX, Hashing
from millstream.streams.dimension.hash_index import HashIndexReader, IndexBuilding
from millstream.streams.dimension.index_key import IndexKey, IndexKind, Matches, Numbers
from millstream.streams.dimension.key_hash import KeyHash
from millstream.streams.dimension.key_terms import same_terms, terms_for
from millstream.streams.dimension.key_types import check_key, column_type, comparable, families_of
from millstream.streams.dimension.manifest import IndexFact, TableManifest, decoded_schema
from millstream.streams.dimension.planes import PlaneReader, PlaneWriters
from millstream.streams.dimension.range_index import RangeIndexReader, ordered_values
from millstream.streams.dimension.stored_columns import ColumnReader
from millstream.streams.errors import DimensionError
from millstream.streams.state.file_locks import hold_lock

__all__ = ["DimensionTable"]

_SCAN_ROWS: Final = 16_384
_LOCK_NAME: Final = "lock"


class DimensionTable:
    """A table that a builder made, mapped and read-only, so that all processes of a machine share one copy.

    One instance serves one thread. `find` knows no two keys apart whose hashes agree, which two keys do with a
    probability of 2^-128, unless the table was built with `verify`.
    """

    def __init__(self, directory: Path, files: FileLayer, hashing: Hashing, *, check: bool) -> None:
        self.directory = directory
        self._files = files
        self._hashing = hashing
        self._load(check=check)

    @classmethod
    def open(
        cls, directory: Path, *, check: bool = False, files: FileLayer | None = None, hashing: Hashing = KeyHash
    ) -> DimensionTable:
        """The table of a directory; `check` reads every file and compares it with its checksum.

        Raises DIMENSION_DAMAGED where there is no whole table. `files` and `hashing` are for tests.
        """
        return cls(directory, files or SharedFiles(), hashing, check=check)

    def _load(self, *, check: bool = False) -> None:
        self._manifest = manifest = TableManifest.read(self._files, self.directory)
        self._planes = PlaneReader(self._files, self.directory, manifest.files, check=check)
        self._schema = decoded_schema(manifest.schema)
        self._types = decoded_schema(manifest.types)
        self._columns: dict[str, ColumnReader] = {}
        self._indexes = {fact.index_key: fact for fact in manifest.indexes}
        self._readers: dict[IndexKey, _HashIndex | _RangeIndex] = {}

    @property
    def schema(self) -> pa.Schema:
        """The columns that `take` and `scan` give."""
        return self._schema

    @property
    def rows(self) -> int:
        return self._manifest.rows

    @property
    def manifest(self) -> TableManifest:
        """What says which files the table has."""
        return self._manifest

    def numbers(self, name: str, dtype: str) -> np.ndarray:
        """The numbers of one of its files, mapped."""
        return self._planes.open(name, dtype)

    def row_numbers(self) -> Numbers:
        """The numbers of all rows, ascending."""
        return np.arange(self.rows, dtype=np.int64)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return self._manifest.size_bytes

    @property
    def bytes_per_row(self) -> float:
        return self.size_bytes / max(self.rows, 1)

    @property
    def indexes(self) -> tuple[IndexKey, ...]:
        """What rows can be found by."""
        return tuple(self._indexes)

    def close(self) -> None:
        """Close the files; what was taken out of them stays whole."""
        self._readers.clear()
        self._columns.clear()

    def find(self, key: IndexKey, probes: Sequence[pa.Array], *, longest: bool = False) -> Matches:
        """Every row that each probe matches, ordered by probe, then row. NULL matches nothing, an empty text does.

        `probes` are one array for each column of an EQUAL key, in its order, one array for the other kinds: values for
        RANGE, addresses for NETWORK, texts for PREFIX. `longest` keeps the rows of each probe's longest network or
        prefix alone. Raises DIMENSION_KEY where there is no such index or the types cannot be compared.
        """
        index = self._index(key)
        return index.find(comparable(key, self._types, probes), longest=longest)

    def _index(self, key: IndexKey) -> _HashIndex | _RangeIndex:
        found = self._readers.get(key)
        if found is None:
            if key not in self._indexes:
                self._load()
            if key not in self._indexes:
                has = ", ".join(map(str, self._indexes)) or "none"
                words = f"The dimension table in {self.directory} has no index {key}; it has {has}."
                raise DimensionError("DIMENSION_KEY", words, remedy="Add the index.")
            fact = self._indexes[key]
            kind = _RangeIndex if key.kind is IndexKind.RANGE else _HashIndex
            found = self._readers[key] = kind(self, fact, self._planes)
        return found

    def hashing(self, key: IndexKey) -> Hashing:
        """What makes the hashes of an index."""
        return self._hashing

    def take(self, rows: Numbers, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """These rows, in that order; `columns` are all of the schema where none are named.

        Raises DIMENSION_COLUMN for a column that is not stored.
        """
        names = self._schema.names if columns is None else list(columns)
        fields = [pa.field(name, column_type(self._schema, name)) for name in names]
        if not fields:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        arrays = [self._column(name).take(rows) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _column(self, name: str) -> ColumnReader:
        found = self._columns.get(name)
        if found is None:
            place = self._schema.get_field_index(name)
            form, data_type = self._manifest.columns[place], self._schema.field(place).type
            found = self._columns[name] = ColumnReader(self._planes, f"column-{place}", data_type, form)
        return found

    def scan(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in the order of their numbers, some thousands at a time."""
        for start in range(0, self.rows, _SCAN_ROWS):
            yield self.take(np.arange(start, min(start + _SCAN_ROWS, self.rows)), columns)

    def add_index(self, key: IndexKey, *, memory_mb: int = 256) -> None:
        """Make an index of the stored rows, for this table and all who open or ask one of this directory later.

        Where several processes want it one makes it and the others wait. Raises DIMENSION_COLUMN where its columns are
        not stored, DIMENSION_KEY, DIMENSION_NOT_WRITABLE.
        """
        check_key(key, self._schema)
        try:
            with hold_lock(self.directory / _LOCK_NAME):
                self._load()
                if key not in self._indexes:
                    self._build(key, memory_mb)
                    self._load()
        except OSError as error:
            words = f"The index {key} of the dimension table in {self.directory} cannot be written"
            raise DimensionError("DIMENSION_NOT_WRITABLE", f"{words}: {error.strerror or error}.") from None

    def _build(self, key: IndexKey, memory_mb: int) -> None:
        name = f"index-{len(self._manifest.indexes)}"
        hashed = self._hashing(bytes.fromhex(self._manifest.seed), len(key.columns))
        path = self.directory / f"{name}{SPILL_SUFFIX}"
        building = IndexBuilding(key, self._schema, hashed, self._files, path, memory_mb * 2**20)
        planes = PlaneWriters(self._files, self.directory)
        try:
            for batch in self.scan(key.columns):
                building.add(batch)
            fact = building.finish(planes, name)
            files = {**self._manifest.files, **planes.finish()}
        finally:
            planes.close()
            building.close()
        manifest = msgspec.structs.replace(self._manifest, indexes=[*self._manifest.indexes, fact], files=files)
        manifest.write(self._files, self.directory)

    def hashes_by(self, key: IndexKey) -> tuple[bytes, bool]:
        """The secret of the hashes, and whether matches are to be compared."""
        return bytes.fromhex(self._manifest.seed), self._manifest.verify

    @property
    def types(self) -> pa.Schema:
        """All columns that the table was made of, also those that only an index knows."""
        return self._types


class _HashIndex:
    """An index by hashes, asked with Arrow arrays."""

    def __init__(self, table: DimensionTable, fact: IndexFact, planes: PlaneReader) -> None:
        self._table = table
        self._key = key = fact.index_key
        self._lengths = fact.lengths
        self._reader = HashIndexReader(planes, fact.name, fact.said)
        self._terms = terms_for(key.kind, families_of(key, table.types))
        seed, self._verify = table.hashes_by(key)
        self._hashed = table.hashing(key)(seed, len(key.columns))

    def find(self, probes: Sequence[pa.Array], *, longest: bool) -> Matches:
        found: list[Matches] = []
        done = np.zeros(len(probes[0]), np.bool_)
        for places, values in self._terms.of_probes(probes, self._lengths):
            probe, row = self._reader.find(self._hashed.of(values))
            if self._verify and len(probe):
                columns = self._table.take(row, self._key.columns).columns
                same = same_terms([one.take(probe) for one in values], self._terms.of_rows(columns)[0])
                probe, row = probe[same], row[same]
            probe = probe if places is None else places[probe]
            if longest:
                fresh = ~done[probe]
                probe, row = probe[fresh], row[fresh]
                done[probe] = True
            found.append(Matches(probe, row))
        return _sort_matches(found)


class _RangeIndex:
    """An index of ranges, asked with one Arrow array."""

    def __init__(self, table: DimensionTable, fact: IndexFact, planes: PlaneReader) -> None:
        key = fact.index_key
        self._reader = RangeIndexReader(planes, fact.name, fact.said, end_included=key.end_included)

    def find(self, probes: Sequence[pa.Array], *, longest: bool) -> Matches:
        return self._reader.find(*ordered_values(probes[0]))


def _sort_matches(found: Sequence[Matches]) -> Matches:
    """All matches in one, ordered by probe, then row."""
    if not found:
        return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
    probe = found[0].probe if len(found) == 1 else np.concatenate([one.probe for one in found])
    row = found[0].row if len(found) == 1 else np.concatenate([one.row for one in found])
    if bool(((probe[1:] < probe[:-1]) | ((probe[1:] == probe[:-1]) & (row[1:] < row[:-1]))).any()):
        order = np.lexsort((row, probe))
        probe, row = probe[order], row[order]
    return Matches(probe, row)
