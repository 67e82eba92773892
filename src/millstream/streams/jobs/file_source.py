"""A table of files as a source of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.jobs.dead_letter import DeadLetters
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.sources import Reading
from millstream.streams.plan.local_paths import local_directory
from millstream.streams.plan.partition_names import DEFAULT_NAME
from millstream.streams.plan.tables import ComputedColumn, MetadataColumn, Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.body_format import BodyColumn, BodyFormat
from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.files.listing import Listing, checked_directory
from millstream.streams.spark.source.files.reader import FileDataSource
from millstream.streams.spark.source.files.spec import QUEUE, FileSpec
from millstream.streams.spark.source.malformed import malformed_spool
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn

__all__ = ["FileSource"]


class FileSource:
    """A directory of files, or one file. Raises JobError JOB_FAILED where it is not there and not waited for.

    `source.monitor-interval` looks for new files at each micro-batch; without it only those are read that are there
    when a job starts.
    """

    def __init__(self, table: Table, job: JobSettings) -> None:
        self.table = table
        self._path = local_directory(table.options["path"])
        self._monitored = "source.monitor-interval" in table.options
        self._nameserver = job.nameserver
        if not self._monitored:
            checked_directory(self._path, table.name)

    def beginning(self) -> Position:
        """Before the first file."""
        return Position({QUEUE: 0}, name=self.table.name)

    def end(self) -> Position:
        """Behind the files that are there."""
        there = Listing(Path(), self._path, self._pattern).candidates()
        return Position({QUEUE: sum(1 for _ in there)}, name=self.table.name)

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The rows, read in Spark's Python workers."""
        table = self.table
        inside = tuple(
            BodyColumn(column.name, column.type) for column in table.physical if column.name not in table.partition_keys
        )
        spec = FileSpec(
            path=str(self._path),
            columns=tuple(
                SourceColumn(column.name, column.type, column.key if isinstance(column, MetadataColumn) else None)
                for column in table.columns
                if column.name in columns and not isinstance(column, ComputedColumn)
            ),
            body=BodyFormat(table.options.get("format", "json").lower(), inside, dict(table.options)),
            listing=str(reading.notes / f"{table.name}.json"),
            start=reading.start,
            partition_columns=table.partition_keys,
            null_name=table.options.get("partition.default-name", DEFAULT_NAME),
            pattern=self._pattern,
            monitored=self._monitored,
            ends=reading.final_tick,
            parallelism=spark.sparkContext.defaultParallelism,
            spool=str(reading.spool),
            queues=reading.queues,
        )
        if reading.batch:
            Listing(Path(spec.listing), self._path, self._pattern).look()
        spark.dataSource.register(FileDataSource)
        reader = spark.read if reading.batch else spark.readStream
        return reader.format(FileDataSource.name()).option(SPEC_OPTION, spec.encode()).load()

    def guard(self, reading: object, job: str) -> None:
        """None: files are not judged."""

    def letters(self, spool: Path) -> DeadLetters:
        """Malformed lines are counted."""
        name, remedy = self.table.name, "Name the files' format: 'format' = 'json' or 'csv'."
        return DeadLetters(
            malformed_spool(spool), str(self._path), None, self._nameserver, 0.0, table=name, remedy=remedy
        )

    @property
    def _pattern(self) -> str:
        return self.table.options.get("source.path.regex-pattern", "")
