"""Builds a dimension table from rows, in bounded memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.store.files import FileLayer, SharedFiles
from millstream.streams.dimension.arrow_parts import is_storable
from millstream.streams.dimension.column_facts import ColumnFacts
from millstream.streams.dimension.hash_index import HashedRows, HashIndexWriter, IndexBuilding
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.key_hash import SEED_BYTES, Hashed, Hashes, KeyHash
from millstream.streams.dimension.key_types import check_key, column_type
from millstream.streams.dimension.manifest import MANIFEST_NAME, IndexFact, TableManifest, encoded_schema
from millstream.streams.dimension.planes import PlaneWriters
from millstream.streams.dimension.sorted_runs import SortedRuns
from millstream.streams.dimension.stored_columns import ColumnWriter
from millstream.streams.errors import DimensionError

__all__ = ["MAX_ROWS", "BuiltTable", "Hashing", "TableBuilder"]

MAX_ROWS: Final = 2**32 - 1
"""Rows that a dimension table has room for."""

MIN_MEMORY_MB: Final = 1
"""The least memory that a builder can be given."""

SPILL_SUFFIX: Final = ".spill"

_STEP_ROWS: Final = 16_384
"""Rows of which the keys are hashed at a time."""

Hashing = Callable[[bytes, int], Hashed]
"""Makes hashes of keys of so many columns with a secret."""


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """What a builder made: its directory, rows and bytes, and how many rows an overlay has or hides."""

    directory: Path
    rows: int
    size_bytes: int
    changed: int = 0


class TableBuilder:
    """Makes a table in `directory` of the rows that are added; nothing of it counts before `finish` returned.

    `stored` are the columns that can be read again (all where none are named); those of the indexes need not be among
    them. `verify` stores the columns of the indexes as well, and every match is compared with them. `memory_mb` bounds
    what rows and their keys take while they are sorted. `seed` makes hashes known, for tests; so do `hashing` and
    `files`. Raises DIMENSION_COLUMN, DIMENSION_KEY, DIMENSION_NOT_WRITABLE, DIMENSION_TOO_LARGE. One instance serves
    one thread.
    """

    def __init__(
        self,
        directory: Path,
        schema: pa.Schema,
        indexes: Sequence[IndexKey],
        *,
        stored: Sequence[str] | None = None,
        memory_mb: int = 256,
        seed: bytes | None = None,
        verify: bool = False,
        hashing: Hashing = KeyHash,
        files: FileLayer | None = None,
    ) -> None:
        self._files = files or SharedFiles()
        self._directory = directory
        self._keys = tuple(dict.fromkeys(indexes))
        self._verify = verify
        self._seed = seed or os.urandom(SEED_BYTES)
        self._hashing = hashing
        self._memory_bytes = max(memory_mb, MIN_MEMORY_MB) * 2**20
        self._schema = schema
        for key in self._keys:
            check_key(key, schema)
        self._stored = self._stored_schema(schema.names if stored is None else stored)
        self._facts = [ColumnFacts(field.type) for field in self._stored]
        primary = next((key for key in self._keys if key.kind is not IndexKind.RANGE), None)
        self._primary = None if primary is None else HashedRows(primary, schema, self._hash_function_of(primary))
        self._others = [key for key in self._keys if key != primary]
        self._carried = self._carried_schema()
        with self._writing():
            self._prepare()
        self._sorted = self._runs("rows", self._carried)
        self._unkeyed = self._runs("unkeyed", self._carried)

    def _stored_schema(self, names: Sequence[str]) -> pa.Schema:
        for name in names:
            data_type = column_type(self._schema, name)
            if not is_storable(data_type):
                raise DimensionError(
                    "DIMENSION_COLUMN", f"The column {name!r} of type {data_type} cannot be stored.",
                    remedy="Cast it to a type of SQL, or leave it out.",
                )  # fmt: skip
        kept = {*names, *(name for key in self._keys if self._verify for name in key.columns)}
        return pa.schema([field for field in self._schema if field.name in kept])

    def _carried_schema(self) -> pa.Schema:
        kept = {*self._stored.names, *(name for key in self._others for name in key.columns)}
        return pa.schema([field for field in self._schema if field.name in kept])

    def _hash_function_of(self, key: IndexKey) -> Hashed:
        return self._hashing(self._seed, len(key.columns))

    def _runs(self, name: str, schema: pa.Schema) -> SortedRuns:
        return SortedRuns(self._files, self._spill_path(name), schema, self._memory_bytes // 2)

    def _spill_path(self, name: str) -> Path:
        return self._directory / f"{name}{SPILL_SUFFIX}"

    def _prepare(self) -> None:
        self._files.make_directory(self._directory)
        names = self._files.names(self._directory)
        if MANIFEST_NAME in names:
            words = f"{self._directory} holds a dimension table already."
            raise DimensionError("DIMENSION_NOT_WRITABLE", words, remedy="Build it in another directory.")
        for name in names:
            if name.endswith(SPILL_SUFFIX):
                self._files.discard(self._directory / name)

    def add(self, batch: pa.RecordBatch) -> None:
        """More rows, in the columns of the schema."""
        if self._sorted.rows + self._unkeyed.rows + batch.num_rows > MAX_ROWS:
            raise DimensionError("DIMENSION_TOO_LARGE", f"A dimension table holds {MAX_ROWS:,} rows at most.")
        batch = batch.select(self._schema.names).cast(self._schema)
        with self._writing():
            for start in range(0, batch.num_rows, _STEP_ROWS):
                self._add(batch.slice(start, _STEP_ROWS))

    def _add(self, batch: pa.RecordBatch) -> None:
        for field, facts in zip(self._stored, self._facts, strict=True):
            facts.add(batch.column(field.name))
        carried = batch.select(self._carried.names)
        if self._primary is None:
            numbers = np.arange(self._unkeyed.rows, self._unkeyed.rows + batch.num_rows, dtype=np.uint64)
            self._unkeyed.add(numbers, numbers, carried)
            return
        high, low, valid = self._primary.of([batch.column(name) for name in self._primary.key.columns])
        if valid.all():
            self._sorted.add(high, low, carried)
            return
        for runs, chosen in ((self._sorted, valid), (self._unkeyed, ~valid)):
            runs.add(high[chosen], low[chosen], carried.filter(pa.array(chosen)))

    def finish(self) -> BuiltTable:
        """The table, on the disk when this returns."""
        with self._writing(), contextlib.closing(_Planes(self._files, self._directory)) as planes:
            indexes, columns = self._write(planes.writers)
            files = planes.writers.finish()
            rows = self._sorted.rows + self._unkeyed.rows
            self._close()
            manifest = TableManifest.of(
                rows=rows, seed=self._seed.hex(), verify=self._verify, schema=encoded_schema(self._stored),
                types=encoded_schema(self._schema), columns=columns, indexes=indexes, files=files,
            )  # fmt: skip
            manifest.write(self._files, self._directory)
        return BuiltTable(self._directory, rows, manifest.size_bytes)

    def _write(self, planes: PlaneWriters) -> tuple[list[IndexFact], list[dict[str, Any]]]:
        columns = [
            ColumnWriter(planes, f"column-{place}", field.type, facts)
            for place, (field, facts) in enumerate(zip(self._stored, self._facts, strict=True))
        ]
        memory_bytes = self._memory_bytes // 2 // max(1, len(self._others))
        others = [
            IndexBuilding(
                key,
                self._carried,
                self._hash_function_of(key),
                self._files,
                self._spill_path(f"index-{place}"),
                memory_bytes,
            )
            for place, key in enumerate(self._others)
        ]
        writer = HashIndexWriter(planes, "index-0", self._sorted.rows, 0) if self._primary else None
        try:
            for hashes, rows in self._all_rows():
                if writer is not None and hashes is not None:
                    writer.append(hashes)
                for field, column in zip(self._stored, columns, strict=True):
                    column.append(rows.column(field.name))
                for one in others:
                    one.add(rows)
            for column in columns:
                column.finish()
            facts = [] if writer is None or self._primary is None else [self._primary.fact("index-0", writer.finish())]
            facts += [one.finish(planes, f"index-{place + 1}") for place, one in enumerate(others)]
        finally:
            for one in others:
                one.close()
        return facts, [column.form for column in columns]

    def _all_rows(self) -> Iterator[tuple[Hashes | None, pa.RecordBatch]]:
        """The rows in their order, those without a key last."""
        for high, low, rows in self._sorted.sort():
            yield Hashes(high, low, np.ones(len(high), np.bool_)), rows
        for _, _, rows in self._unkeyed.sort():
            yield None, rows

    def _close(self) -> None:
        self._sorted.close()
        self._unkeyed.close()

    def abandon(self) -> None:
        """Let go of what was added, and of its files."""
        self._close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):
                self.abandon()
            words = f"The dimension table in {self._directory} cannot be written: {error.strerror or error}."
            raise DimensionError("DIMENSION_NOT_WRITABLE", words) from None


class _Planes:
    """The files under way, let go of whatever happens."""

    def __init__(self, files: FileLayer, directory: Path) -> None:
        self.writers = PlaneWriters(files, directory)

    def close(self) -> None:
        self.writers.close()
