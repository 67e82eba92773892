"""Makes a dimension table of rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.streams.dimension.index_key import IndexKey

__all__ = ["BuiltTable", "TableBuilder"]


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """What a builder made."""

    directory: Path
    rows: int
    size_bytes: int


class TableBuilder:
    """Makes a table in `directory` of the rows that are added; nothing of it counts before `finish` returned."""

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
    ) -> None:
        self._directory = directory
        self._schema = schema
        self._indexes = tuple(indexes)
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows more, in the columns of the schema."""
        self._batches.append(batch)

    def finish(self) -> BuiltTable:
        """The table, on the disk when this returns."""
        self._directory.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches(self._batches, self._schema)
        with pa.OSFile(str(self._directory / "rows.arrow"), "wb") as sink, pa.ipc.new_file(sink, self._schema) as out:
            out.write_table(table.combine_chunks())
        said = {"indexes": [key.encoded() for key in self._indexes]}
        (self._directory / "manifest.json").write_text(json.dumps(said))
        return BuiltTable(self._directory, table.num_rows, (self._directory / "rows.arrow").stat().st_size)

    def abandon(self) -> None:
        """Forget what was added and remove its files."""
        self._batches.clear()
