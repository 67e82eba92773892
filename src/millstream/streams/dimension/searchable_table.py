"""What a lookup asks of a table, whether or not an overlay lies on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from millstream.streams.dimension.index_key import IndexKey, Matches, Numbers

__all__ = ["SearchableTable"]


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
        """Let go of the files."""
        ...
