"""What a broker asks of the process that makes its Parquet files and keeps its Iceberg tables, and what that answers.

A call may be made again after any failure: files have the names that the request gives them, and a table is brought to
hold the files that the request names, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

__all__ = [
    "ColumnWork",
    "CopiedFile",
    "CopyPart",
    "CopyRequest",
    "TableFile",
    "TableFiles",
    "TableRequest",
    "TableState",
]


class CopyPart(msgspec.Struct, frozen=True, array_like=True):
    """Messages of one queue from an offset to before another, and the object that they lie in."""

    queue_id: int
    first_queue_offset: int
    next_queue_offset: int
    object_key: str
    object_bytes: int


class CopyRequest(msgspec.Struct, frozen=True):
    """A Parquet file of one topic: `key` is where it goes, `parts` what it holds, in that order."""

    topic: str
    broker: str
    columns: str
    """As `TopicConfig.column_copy` has them."""
    body_format: str
    key: str
    parts: Sequence[CopyPart]
    passes_damage: bool = False
    """Whether what is damaged is left out and counted; else it fails the call."""


class CopiedFile(msgspec.Struct, frozen=True):
    """A file that is whole in the store. Without rows there is none."""

    size_bytes: int
    rows: int
    malformed: int
    """Of the rows: those whose bodies do not fit the columns. They have the body as it is."""
    lost: int
    """Messages that are damaged, and so in no row."""
    first_stored_ms: int
    last_stored_ms: int
    next_offsets: Mapping[int, int]
    """By queue number the offset behind the last message."""


class TableRequest(msgspec.Struct, frozen=True):
    """The table of a topic: which files of this broker it is to hold, and from which offset of each queue none."""

    topic: str
    cluster: str
    broker: str
    columns: str
    body_format: str
    keys: Sequence[str]
    next_offsets: Mapping[int, int]


class TableState(msgspec.Struct, frozen=True):
    """A table as a call left it; `added` and `removed` are the files that it changed."""

    added: int
    removed: int


class TableFile(msgspec.Struct, frozen=True, array_like=True):
    """A data file that some snapshot of a table names; `is_current`: the present one does."""

    key: str
    size_bytes: int
    is_current: bool


class TableFiles(msgspec.Struct, frozen=True):
    """Some of the files of a table, in the order of their keys; `after` is where to go on, blank at the end."""

    files: Sequence[TableFile]
    after: str = ""


class ColumnWork(Protocol):
    """Does the work outside of the broker's event loop."""

    async def check(self, columns: str, body_format: str, accepted: str) -> None:
        """Raise COLUMNS_REFUSED where columns cannot be, or do not fit the `accepted` ones of earlier files."""
        ...

    async def copy(self, request: CopyRequest) -> CopiedFile:
        """Put the file; the one that is there already counts.

        Raises CHUNK_DAMAGED, COLUMN_COPY_FAILED, EXTRA_MISSING, ObjectNotFound, ObjectStoreDenied, ObjectStoreAway.
        """
        ...

    @property
    def keeps_tables(self) -> bool:
        """Whether there is a catalogue of tables; without one there are files alone."""
        ...

    async def keep_table(self, request: TableRequest) -> TableState:
        """Make the table hold those files of the broker, and no others. Raises TABLE_REFUSED and as `copy`."""
        ...

    async def drop_table(self, cluster: str, topic: str) -> None:
        """Forget the table, whose files stay. No error where there is none. Raises as `keep_table`."""
        ...

    async def tidy_table(self, cluster: str, topic: str, before_ms: int) -> int:
        """Forget snapshots that were followed by others before that time, delete what they alone had; how many objects.

        Raises as `keep_table`.
        """
        ...

    async def list_files(self, cluster: str, topic: str, after: str) -> TableFiles:
        """The next data files behind that key that any snapshot of the table names, of all brokers.

        Those in another object store are left out. None where there is no table. Raises as `keep_table`.
        """
        ...

    async def close(self) -> None:
        """End what is under way."""
        ...
