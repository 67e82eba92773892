"""`spark.readStream.format("millstream-database")`: a table once, in micro-batches of its parts or as a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millstream.streams.databases.database import database_at
from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.database.contents import DatabaseRows
from millstream.streams.spark.source.database.spec import QUEUE, DatabaseSpec
from millstream.streams.spark.source.malformed import MalformedWriter
from millstream.streams.spark.source.partition import Slice
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.rows import tick_row
from millstream.streams.spark.source.ticks import END_OF_TIME_MS, tick_between

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PASSWORD_OPTION", "DatabaseBatchReader", "DatabaseDataSource", "DatabasePartition", "DatabaseStreamReader"]

PASSWORD_OPTION = "password"
"""The option of the password, whose name Spark does not show (spark.redaction.regex)."""


class DatabaseDataSource(DataSource):
    """A table of a database as a Spark data source, streaming and batch."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "millstream-database"

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden ones."""
        return self._spec().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of all parts."""
        return DatabaseBatchReader(self._spec())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches."""
        return DatabaseStreamReader(self._spec())

    def _spec(self) -> DatabaseSpec:
        spec = DatabaseSpec.decode(self.options[SPEC_OPTION])
        return replace(spec, address=replace(spec.address, password=self.options.get(PASSWORD_OPTION, "")))


class DatabasePartition(InputPartition):
    """What one task reads: a part of the table, or a tick."""

    def __init__(self, part: int | None, tick_ms: int | None = None) -> None:
        super().__init__(None)
        self.part = part
        self.tick_ms = tick_ms


class DatabaseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of as many parts as are read at one time; positions count parts."""

    def __init__(self, spec: DatabaseSpec) -> None:
        self._spec = spec

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position that was fixed when the job's checkpoint was made."""
        return self._spec.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit is one of parts, which Spark does not know."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """The table ends by itself."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself where every part is read."""
        spec, begin = self._spec, Position.from_json(start).going_on()
        first = begin.offset(QUEUE)
        if first < spec.parts.count:
            return replace(begin, queues={QUEUE: min(spec.parts.count, first + max(1, spec.parallelism))}).to_json()
        if spec.ends:
            return replace(begin, ended=True).to_json()
        return begin.to_json() if Position.from_json(start).ended else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        tasks = [DatabasePartition(part) for part in range(begin.offset(QUEUE), until.offset(QUEUE))]
        tick_ms = tick_between(begin, until)
        return tasks if tick_ms is None else [*tasks, DatabasePartition(None, tick_ms)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, partition)


class DatabaseBatchReader(DataSourceReader):
    """All parts, once."""

    def __init__(self, spec: DatabaseSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each part."""
        tasks = [DatabasePartition(part) for part in range(self._spec.parts.count)]
        return [*tasks, DatabasePartition(None, END_OF_TIME_MS)] if self._spec.ends else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read(self._spec, partition)


def _read(spec: DatabaseSpec, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, DatabasePartition):
        raise TypeError(f"{partition!r} is no part of a table")
    rows = DatabaseRows(spec, database_at(spec.address))
    if partition.part is not None:
        spool = MalformedWriter(spec.spool, Slice(QUEUE, partition.part, partition.part + 1), keep_bodies=False)
        yield from rows.read(partition.part, spool)
    if partition.tick_ms is not None:
        yield tick_row(rows.schema, partition.tick_ms)
