"""A table of a database as a source of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.databases.conditions import asked_conditions
from millstream.streams.databases.database import CHUNK_ROWS, Database, open_database
from millstream.streams.databases.driver import StoredColumn
from millstream.streams.databases.failure import DatabaseFailure
from millstream.streams.databases.fit import is_whole
from millstream.streams.databases.parts import TableParts
from millstream.streams.databases.retry import DatabaseRetry
from millstream.streams.databases.written_table import columns_named
from millstream.streams.errors import JobError
from millstream.streams.jobs.dead_letter import DeadLetters
from millstream.streams.jobs.settings import JobSettings, duration_ms
from millstream.streams.jobs.sources import Reading
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.database.reader import PASSWORD_OPTION, DatabaseDataSource
from millstream.streams.spark.source.database.spec import QUEUE, DatabaseSpec
from millstream.streams.spark.source.malformed import malformed_spool
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn
from millstream.streams.sql.variables import with_environment

__all__ = ["DatabaseSource"]

_RETRIES = 3
_DEFAULT_TIMEOUT = "60 s"


class DatabaseSource:
    """A table that is read once, in parts.

    Raises JobError DATABASE_UNREACHABLE, DATABASE_REFUSED, DATABASE_TABLE; JOB_FAILED for parts that cannot be.
    """

    def __init__(self, table: Table, job: JobSettings) -> None:
        self.table = table
        self._what = f"The table {table.name} cannot be read"
        self._options = with_environment(table.options, self._what)
        self._nameserver = job.nameserver
        self._database = open_database(self._options)
        timeout_s = duration_ms(self._options.get("connection.max-retry-timeout", _DEFAULT_TIMEOUT)) / 1000
        try:
            self._stored = DatabaseRetry(_RETRIES, timeout_s).run(partial(self._columns, self._database))
        except DatabaseFailure as failure:
            raise failure.job_error(self._what) from None
        self._parts = self._cut()

    def beginning(self) -> Position:
        """Before the first part."""
        return Position({QUEUE: 0}, name=self.table.name)

    def end(self) -> Position:
        """Behind the last part."""
        return Position({QUEUE: self._parts.count}, name=self.table.name)

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The rows, read in Spark's Python workers."""
        spec = self.spec(columns, reading, spark.sparkContext.defaultParallelism)
        spark.dataSource.register(DatabaseDataSource)
        reader = spark.read if reading.batch else spark.readStream
        source = reader.format(DatabaseDataSource.name()).option(SPEC_OPTION, spec.encode())
        return source.option(PASSWORD_OPTION, self._database.address.password).load()

    def spec(self, columns: Mapping[str, DataType], reading: Reading, parallelism: int) -> DatabaseSpec:
        """What is read of the table, and how; without the password."""
        wanted = tuple(SourceColumn(one.name, one.type) for one in self.table.physical if one.name in columns)
        condition, values = asked_conditions(self._database, self._stored, reading.conditions)
        return DatabaseSpec(
            name=self.table.name,
            address=replace(self._database.address, password=""),
            table=self._options["table-name"],
            columns=wanted,
            stored=tuple(self._stored[column.name].name for column in wanted),
            start=reading.start,
            parts=self._parts,
            condition=condition,
            values=values,
            chunk_rows=int(self._options.get("scan.fetch-size", "0")) or CHUNK_ROWS,
            retries=_RETRIES,
            ends=reading.final_tick,
            parallelism=parallelism,
            spool=str(reading.spool),
            queues=reading.queues,
        )

    def guard(self, reading: object, job: str) -> None:
        """None: rows of a database are not judged."""

    def letters(self, spool: Path) -> DeadLetters:
        """Rows with a value that does not fit its column are counted."""
        address = str(self._database.address)
        return DeadLetters(malformed_spool(spool), address, None, self._nameserver, 0.0, table=self.table.name)

    def _columns(self, database: Database) -> dict[str, StoredColumn]:
        names = [column.name for column in self.table.physical]
        by = self._options.get("scan.partition.column")
        with database.connection() as connection:
            return columns_named(connection, self._what, self._options["table-name"], [*names, *([by] if by else [])])

    def _cut(self) -> TableParts:
        options = self._options
        by = options.get("scan.partition.column")
        if by is None:
            return TableParts()
        column = self._stored[by]
        if not is_whole(column.type):
            words = f"{self._what}: {by}, by which it is cut, is of type {column.type}."
            raise JobError("JOB_FAILED", words, remedy="Name a column of whole numbers.")
        bounds = [int(options[f"scan.partition.{end}-bound"]) for end in ("lower", "upper")]
        try:
            return TableParts.of(column.name, int(options["scan.partition.num"]), bounds[0], bounds[1])
        except ValueError as error:
            raise JobError("JOB_FAILED", f"{self._what}: {error}.", remedy="Swap the bounds of its parts.") from None
