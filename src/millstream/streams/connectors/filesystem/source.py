"""Files of a directory as rows: each file once, in the order in which it was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from millstream.streams.connectors.filesystem.contents import FileRows
from millstream.streams.connectors.filesystem.listing import FoundFile, Listing, checked_directory
from millstream.streams.connectors.protocols import MalformedRows, Offsets, SourcePartition
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.plan.local_paths import local_directory
from millstream.streams.spark.source.malformed import MalformedWriter
from millstream.streams.spark.source.partition import Slice

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_BYTES", "QUEUE", "FileSource", "files_until"]

QUEUE: Final = "files/0"
"""The one queue of a table of files; its offsets count files of the list."""

BATCH_BYTES: Final = 128 * 1024 * 1024
"""Bytes of files that a micro-batch reads at most; one larger file is read whole."""


class FileSource:
    """A directory of files, or one file. Raises JobError JOB_FAILED where it is not there and not waited for.

    `source.monitor-interval` looks for new files at each micro-batch; without it only those are read that are there
    when a job starts.
    """

    def __init__(self, table: ConnectedTable) -> None:
        self._table = table
        self._path = local_directory(table.options["path"])
        self._is_monitored = "source.monitor-interval" in table.options
        self._list: Listing | None = None
        if not self._is_monitored:
            checked_directory(self._path, table.name)

    def first(self) -> Offsets:
        """Before the first file."""
        return {QUEUE: 0}

    def latest(self) -> Offsets:
        """Behind the files that are there."""
        if not self._table.read.directory:
            return {QUEUE: sum(1 for _ in self._listed(Path()).candidates())}
        listing = self._listing()
        listing.look()
        return {QUEUE: len(listing.files)}

    def end_of(self, start: Offsets, max_rows: int, target: Offsets | None) -> Offsets:
        """Some files further; the limit is one of bytes."""
        listing = self._listing()
        if self._is_monitored and target is None:
            listing.look()
        first = start.get(QUEUE, 0)
        return {QUEUE: max(first, files_until(listing.files, first))}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        """The files in turn to as many tasks as run at once."""
        first, until = start.get(QUEUE, 0), end[QUEUE]
        files = self._listing().files
        numbered = [(number, files[number].path) for number in range(first, until)]
        count = min(max(1, self._table.read.parallelism), len(numbered))
        return [
            SourcePartition(QUEUE, first, until, msgspec.json.encode(numbered[place::count]).decode())
            for place in range(count)
        ]

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        rows = FileRows(self._table)
        for number, path in msgspec.json.decode(partition.note, type=list[tuple[int, str]]):
            spool = MalformedWriter(self._table.read.spool, Slice(QUEUE, number, number + 1), keep_bodies=False)
            yield from rows.read(Path(path), spool)

    def malformed(self) -> MalformedRows:
        """Lines that are no rows."""
        return MalformedRows(str(self._path), "Name the files' format: 'format' = 'json' or 'csv'.")

    def _listing(self) -> Listing:
        if self._list is None:
            self._list = self._listed(Path(self._table.read.directory) / f"{self._table.name}.json")
            # What was read is in the list before it is in an offset, also where a restart finds more.
            self._list.look()
        return self._list

    def _listed(self, file: Path) -> Listing:
        return Listing(file, self._path, self._table.options.get("source.path.regex-pattern", ""))


def files_until(files: Sequence[FoundFile], first: int) -> int:
    """How far a micro-batch goes that begins at the file `first`: one file, and more while they are small enough."""
    until, size_bytes = first, 0
    while until < len(files) and (until == first or size_bytes + files[until].size_bytes <= BATCH_BYTES):
        size_bytes += files[until].size_bytes
        until += 1
    return until
