"""Reads files of a directory as rows, each file once, in the order of discovery."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.streams.connectors.made_rows import batch_of
from millstream.streams.connectors.protocols import MalformedRows, Offsets, SourcePartition
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.tables import DEFAULT_NAME, local_directory, named_values
from millstream.streams.plan.types import Schema
from millstream.streams.spark.columns.types import arrow_schema, spark_schema
from millstream.streams.spark.source.dead_letters import MalformedWriter
from millstream.streams.spark.source.formats.body_format import BodyColumn, BodyFormat
from millstream.streams.spark.source.formats.decoder import ColumnBuilder
from millstream.streams.spark.source.formats.keyed_rows import body_decoder
from millstream.streams.spark.source.position import Slice
from millstream.streams.state.atomic_file import write_file

__all__ = ["BATCH_BYTES", "QUEUE", "FileRows", "FileSource", "FoundFile", "Listing", "checked_directory", "files_until"]


_HIDDEN = (".", "_")


class FoundFile(msgspec.Struct, frozen=True):
    """One file, and how large it was when it was seen."""

    path: str
    size_bytes: int


class Listing:
    """The list in `file`; `path` is a directory (with all below it) or one file, `pattern` what whole paths look like.

    Names that begin with a dot or an underscore are passed over, as those of files in the making.
    """

    def __init__(self, file: Path, path: Path, pattern: str) -> None:
        self._file = file
        self._path = path
        self._pattern = re.compile(pattern) if pattern else None
        self.files: list[FoundFile] = self._read()
        self._known = {found.path for found in self.files}

    def look(self) -> None:
        """Add what is new, the oldest files first."""
        new = [path for path in self.candidates() if str(path) not in self._known]
        if not new:
            return
        seen = sorted((path.stat().st_mtime_ns, str(path), path.stat().st_size) for path in new)
        self.files += [FoundFile(path, size) for _, path, size in seen]
        self._known.update(path for _, path, _ in seen)
        write_file(self._file, msgspec.json.encode(self.files))

    def _read(self) -> list[FoundFile]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[FoundFile])
        except (FileNotFoundError, IsADirectoryError):
            return []

    def candidates(self) -> Iterator[Path]:
        """What is there now, in no order."""
        if self._path.is_file():
            yield self._path
            return
        for directory, names, files in os.walk(self._path):
            # A column may be called _day; its directories are no hidden ones.
            names[:] = [name for name in names if not name.startswith(_HIDDEN) or "=" in name]
            for name in files:
                path = Path(directory) / name
                if not name.startswith(_HIDDEN) and (self._pattern is None or self._pattern.fullmatch(str(path))):
                    yield path


def checked_directory(path: Path, table: str) -> None:
    """Raise JobError JOB_FAILED where there is nothing to read and nothing is waited for."""
    if not path.exists():
        words = f"The table {table} reads {path}, which does not exist."
        raise JobError("JOB_FAILED", words, remedy="Correct 'path', or wait for it with 'source.monitor-interval'.")


_ROWS_PER_RECORD_BATCH = 5_000


class FileRows:
    """Makes record batches of the columns that are read."""

    def __init__(self, table: ConnectedTable) -> None:
        self.schema: pa.Schema = arrow_schema(spark_schema(Schema(table.schema.fields)))
        self._table = table
        outside = {*table.partition_keys, *(column.name for column in table.columns if column.metadata is not None)}
        self._inside = [column for column in table.columns if column.name not in outside]
        stored = (column for column in table.stored if column.name not in table.partition_keys)
        columns = tuple(BodyColumn(column.name, column.type) for column in stored)
        self._body = BodyFormat(table.options["format"].lower(), columns, dict(table.options))

    def read(self, path: Path, spool: MalformedWriter) -> Iterator[pa.RecordBatch]:
        """The rows of a file, whose lines that are none go to `spool`."""
        parquet = self._body.name == "parquet"
        named = {**_partition_values_of(path, self._table), **_facts(path, self._table)}
        for count, columns in self._parquet(path) if parquet else self._lines(path, spool):
            yield self._batch(count, columns, named)

    def _batch(self, count: int, columns: dict[str, pa.Array], named: dict[str, Any]) -> pa.RecordBatch:
        arrays = []
        for column, field in zip(self._table.columns, self.schema, strict=True):
            if column.name in columns:
                arrays.append(columns[column.name])
            elif column.metadata is not None:
                arrays.append(pa.repeat(pa.scalar(named[column.name], field.type), count))
            else:
                value = ColumnBuilder("", column.name, column.type).build_values([named.get(column.name)], {})
                arrays.append(pa.repeat(value[0], count).cast(field.type))
        return batch_of(arrays, self.schema, count)

    def _lines(self, path: Path, spool: MalformedWriter) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        decoder = body_decoder(self._body, [(column.name, column.type) for column in self._inside])
        first = 0
        with path.open("rb") as file:
            while lines := [line.rstrip(b"\r\n") for line in islice(file, _ROWS_PER_RECORD_BATCH)]:
                places = [place for place, line in enumerate(lines) if line]
                decoded = decoder.decode([lines[place] for place in places])
                for refused in decoded.malformed:
                    spool.add(first + places[refused.position], refused.reason, b"")
                first += len(lines)
                count = len(places) if decoded.kept is None else len(decoded.kept)
                if count:
                    names = [column.name for column in self._inside]
                    yield count, dict(zip(names, decoded.columns, strict=True))
        spool.finish()

    def _parquet(self, path: Path) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        with pq.ParquetFile(path) as file:
            there = [column for column in self._inside if column.name in file.schema_arrow.names]
            for batch in file.iter_batches(_ROWS_PER_RECORD_BATCH, columns=[column.name for column in there]):
                yield (
                    batch.num_rows,
                    {
                        column.name: batch.column(column.name).cast(self.schema.field(column.name).type)
                        for column in there
                    },
                )


def _partition_values_of(path: Path, table: ConnectedTable) -> dict[str, str | None]:
    """The values that directories such as `day=2026-01-01` name, below that of the table."""
    root = local_directory(table.options["path"])
    directories = path.parent.relative_to(root).parts if path.is_relative_to(root) and path != root else ()
    return named_values(directories, table.options.get("partition.default-name", DEFAULT_NAME))


def _facts(path: Path, table: ConnectedTable) -> dict[str, str | int | datetime.datetime]:
    """What metadata columns say of the file itself."""
    wanted = {column.name: column.metadata for column in table.columns if column.metadata is not None}
    if not wanted:
        return {}
    status = path.stat()
    known: dict[str, str | int | datetime.datetime] = {
        "file.path": str(path),
        "file.name": path.name,
        "file.size": status.st_size,
        "file.modification-time": datetime.datetime.fromtimestamp(status.st_mtime_ns // 1_000_000 / 1000, datetime.UTC),
    }
    return {name: known[key] for name, key in wanted.items()}


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
            return {QUEUE: sum(1 for _ in self._list_file(Path()).candidates())}
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

    def malformed_rows(self) -> MalformedRows:
        """Lines that are no rows."""
        return MalformedRows(str(self._path), "Name the files' format: 'format' = 'json' or 'csv'.")

    def _listing(self) -> Listing:
        if self._list is None:
            self._list = self._list_file(Path(self._table.read.directory) / f"{self._table.name}.json")
            # What was read is in the list before it is in an offset, also where a restart finds more.
            self._list.look()
        return self._list

    def _list_file(self, file: Path) -> Listing:
        return Listing(file, self._path, self._table.options.get("source.path.regex-pattern", ""))


def files_until(files: Sequence[FoundFile], first: int) -> int:
    """How far a micro-batch goes that begins at the file `first`: one file, and more while they are small enough."""
    until, size_bytes = first, 0
    while until < len(files) and (until == first or size_bytes + files[until].size_bytes <= BATCH_BYTES):
        size_bytes += files[until].size_bytes
        until += 1
    return until
