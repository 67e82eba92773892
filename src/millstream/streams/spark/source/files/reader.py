"""`spark.readStream.format("millstream-files")`: files in micro-batches, and once as a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.files.contents import FileRows
from millstream.streams.spark.source.files.listing import FoundFile, Listing
from millstream.streams.spark.source.files.spec import QUEUE, FileSpec
from millstream.streams.spark.source.malformed import MalformedWriter
from millstream.streams.spark.source.partition import Slice
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.rows import tick_row
from millstream.streams.spark.source.ticks import END_OF_TIME_MS, tick_between

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BATCH_BYTES",
    "FileBatchReader",
    "FileDataSource",
    "FilePartition",
    "FileStreamReader",
    "files_until",
    "listing_of",
]

BATCH_BYTES: Final = 128 * 1024 * 1024
"""Bytes of files that a micro-batch reads at most; one larger file is read whole."""


class FileDataSource(DataSource):
    """Files as a Spark data source, streaming and batch."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "millstream-files"

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden ones."""
        return self._spec().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of all files of the list."""
        return FileBatchReader(self._spec())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches."""
        return FileStreamReader(self._spec())

    def _spec(self) -> FileSpec:
        return FileSpec.decode(self.options[SPEC_OPTION])


class FilePartition(InputPartition):
    """What one task reads: files with their places in the list, or a tick."""

    def __init__(self, files: tuple[tuple[int, str], ...], tick_ms: int | None = None) -> None:
        super().__init__(None)
        self.files = files
        self.tick_ms = tick_ms


class FileStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of files; positions count files of the list."""

    def __init__(self, spec: FileSpec) -> None:
        self._spec = spec
        self._list: Listing | None = None
        self._is_fixed = not spec.monitored

    def __getstate__(self) -> dict[str, Any]:
        return {"_spec": self._spec, "_list": None, "_is_fixed": self._is_fixed}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position that was fixed when the job's checkpoint was made."""
        return self._spec.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit is one of bytes, which Spark does not know."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """A bounded run reads what is there now."""
        self._listing().look()
        self._is_fixed = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself where there is no file."""
        begin = Position.from_json(start).going_on()
        listing = self._listing()
        if not self._is_fixed:
            listing.look()
        first = begin.offset(QUEUE)
        until = files_until(listing.files, first)
        if until > first:
            return replace(begin, queues={QUEUE: until}).to_json()
        if self._is_fixed and self._spec.ends:
            return replace(begin, ended=True).to_json()
        return begin.to_json() if Position.from_json(start).ended else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        tasks = _tasks(self._spec, self._listing().files, begin.offset(QUEUE), until.offset(QUEUE))
        tick_ms = tick_between(begin, until)
        return tasks if tick_ms is None else [*tasks, FilePartition((), tick_ms)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, partition)

    def _listing(self) -> Listing:
        if self._list is None:
            self._list = listing_of(self._spec)
            # What was read is in the list before it is in a position, also where a restart finds more.
            self._list.look()
        return self._list


class FileBatchReader(DataSourceReader):
    """All files, once."""

    def __init__(self, spec: FileSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; at least one, which may be empty."""
        listing = listing_of(self._spec)
        tasks = _tasks(self._spec, listing.files, 0, len(listing.files))
        last = FilePartition((), END_OF_TIME_MS if self._spec.ends else None)
        return [*tasks, last] if self._spec.ends or not tasks else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, partition)


def listing_of(spec: FileSpec) -> Listing:
    """The list that a job keeps of its files."""
    return Listing(Path(spec.listing), Path(spec.path), spec.pattern)


def files_until(files: Sequence[FoundFile], first: int) -> int:
    """How far a micro-batch goes that begins at the file `first`: one file, and more while they are small enough."""
    until, size_bytes = first, 0
    while until < len(files) and (until == first or size_bytes + files[until].size_bytes <= BATCH_BYTES):
        size_bytes += files[until].size_bytes
        until += 1
    return until


def _tasks(spec: FileSpec, files: Sequence[FoundFile], first: int, until: int) -> list[FilePartition]:
    """The files in turn to as many tasks as run at once."""
    numbered = [(number, files[number].path) for number in range(first, until)]
    count = min(max(1, spec.parallelism), len(numbered))
    return [FilePartition(tuple(numbered[place::count])) for place in range(count)]


def _read(spec: FileSpec, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, FilePartition):
        raise TypeError(f"{partition!r} is no partition of files")
    rows = FileRows(spec)
    for number, path in partition.files:
        spool = MalformedWriter(spec.spool, Slice(QUEUE, number, number + 1), keep_bodies=False)
        yield from rows.read(Path(path), spool)
    if partition.tick_ms is not None:
        yield tick_row(rows.schema, partition.tick_ms)
