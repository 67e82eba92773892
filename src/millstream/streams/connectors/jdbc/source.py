"""Reads a database table once, in parts.

The rows of a part of a table as record batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa

from millstream.streams.connectors.jdbc.databases.conditions import sql_of_conditions
from millstream.streams.connectors.jdbc.databases.database import (
    CHUNK_ROWS,
    Database,
    DatabaseConnection,
    open_database,
)
from millstream.streams.connectors.jdbc.databases.driver import StoredColumn
from millstream.streams.connectors.jdbc.databases.failure import DatabaseFailure, DatabaseRetry
from millstream.streams.connectors.jdbc.databases.values import is_whole, to_column_value
from millstream.streams.connectors.jdbc.databases.written_table import TableParts, find_columns
from millstream.streams.connectors.made_rows import batch_of
from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.protocols import MalformedRows, Offsets, SourcePartition
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.types import Schema
from millstream.streams.spark.columns.types import arrow_schema, spark_schema
from millstream.streams.spark.source.dead_letters import MalformedWriter
from millstream.streams.spark.source.formats.decoder import ColumnBuilder, DecodedRows, decoded_rows
from millstream.streams.spark.source.position import Slice

__all__ = ["QUEUE", "DatabasePlan", "DatabaseRows", "DatabaseSource"]

_CONNECT_LIMIT_S = 60.0


class DatabaseRows:
    """Makes record batches of the columns that are read, one of each chunk of rows.

    `stored` are the columns' names in `named`, the table in the database. `chunk_rows` are fetched at once.
    """

    def __init__(
        self,
        table: ConnectedTable,
        database: Database,
        named: str,
        stored: Sequence[str],
        *,
        chunk_rows: int,
        retries: int,
    ) -> None:
        self.schema: pa.Schema = arrow_schema(spark_schema(Schema(table.schema.fields)))
        self._table = table
        self._database = database
        self._named = named
        self._stored = stored
        self._chunk_rows = chunk_rows
        self._retries = retries
        self._builders = [ColumnBuilder("", column.name, column.type) for column in table.columns]

    def read(self, condition: str, values: Sequence[Any], spool: MalformedWriter) -> Iterator[pa.RecordBatch]:
        """The rows for which a condition of SQL holds; those with a value that does not fit its column go to `spool`.

        Raises JobError DATABASE_UNREACHABLE and the like.
        """
        try:
            connection = DatabaseRetry(self._retries, _CONNECT_LIMIT_S).run(self._database.connect)
            try:
                yield from self._chunks(connection, condition, values, spool)
            finally:
                connection.close()
        except DatabaseFailure as failure:
            raise failure.job_error(f"The table {self._table.name} cannot be read") from None

    def _chunks(
        self, connection: DatabaseConnection, condition: str, values: Sequence[Any], spool: MalformedWriter
    ) -> Iterator[pa.RecordBatch]:
        query = self._database.select(self._named, self._stored, condition)
        first = 0
        for rows in connection.rows_in_chunks(query, tuple(values), self._chunk_rows):
            decoded = self._decode(rows)
            for refused in decoded.malformed:
                spool.add(first + refused.position, refused.reason, b"")
            first += len(rows)
            count = len(rows) if decoded.kept is None else len(decoded.kept)
            if count:
                yield batch_of(decoded.columns, self.schema, count)
        spool.finish()

    def _decode(self, rows: Sequence[Sequence[Any]]) -> DecodedRows:
        reasons: dict[int, str] = {}
        columns = []
        for place, (builder, column) in enumerate(zip(self._builders, self._table.columns, strict=True)):
            values = [to_column_value(row[place], column.type) for row in rows]
            columns.append(builder.build_values(values, reasons))
        return decoded_rows(columns, reasons, len(rows))


QUEUE: Final = "database/0"
"""The one queue of such a table; its offsets count parts."""

_RETRIES: Final = 3


@dataclass(frozen=True, slots=True)
class DatabasePlan:
    """What the driver finds out for all workers."""

    parts: TableParts
    """The table cut by ranges of a column."""
    stored: Mapping[str, str]
    """The names of the columns in the database, by ours."""
    condition: str = ""
    """SQL for the rows that are wanted, blank for all."""
    values: tuple[int | str, ...] = ()
    """Those that the marks in the condition stand for."""


class DatabaseSource:
    """A table that is read once, in parts.

    Raises JobError DATABASE_UNREACHABLE, DATABASE_REFUSED, DATABASE_TABLE; JOB_FAILED for parts that cannot be.
    """

    def __init__(self, table: ConnectedTable) -> None:
        self._table = table
        self._what = f"The table {table.name} cannot be read"
        self._options = table.options
        self.database = open_database(dict(table.options))
        self._stored: Mapping[str, StoredColumn] = {}
        if table.read.plan:
            self._plan = msgspec.json.decode(table.read.plan, type=DatabasePlan)
            return
        timeout_s = milliseconds(self._options["connection.max-retry-timeout"]) / 1000
        try:
            self._stored = DatabaseRetry(_RETRIES, timeout_s).run(partial(self._columns, self.database))
        except DatabaseFailure as failure:
            raise failure.job_error(self._what) from None
        self._plan = DatabasePlan(self._cut(), {name: column.name for name, column in self._stored.items()})

    def first(self) -> Offsets:
        """Before the first part."""
        return {QUEUE: 0}

    def latest(self) -> Offsets:
        """Behind the last part."""
        return {QUEUE: self._plan.parts.count}

    def plan(self, conditions: Sequence[Expression]) -> str:
        """The parts, and what is asked of the database."""
        condition, values = sql_of_conditions(self.database, self._stored, conditions)
        return msgspec.json.encode(DatabasePlan(self._plan.parts, self._plan.stored, condition, tuple(values))).decode()

    def end_of(self, start: Offsets, max_rows: int, target: Offsets | None) -> Offsets:
        """As many parts further as are read at one time; the limit is not one of rows."""
        first = start.get(QUEUE, 0)
        return {QUEUE: max(first, min(self._plan.parts.count, first + max(1, self._table.read.parallelism)))}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        """A task for each part."""
        return [SourcePartition(QUEUE, part, part + 1) for part in range(start.get(QUEUE, 0), end[QUEUE])]

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        spool = MalformedWriter(self._table.read.spool, Slice(QUEUE, partition.start, partition.end), keep_bodies=False)
        rows = DatabaseRows(
            self._table,
            self.database,
            self._options["table-name"],
            [self._plan.stored[column.name] for column in self._table.columns],
            chunk_rows=int(self._options["scan.fetch-size"]) or CHUNK_ROWS,
            retries=_RETRIES,
        )
        bounds, ends = self._plan.parts.condition(self.database, partition.start)
        condition = " AND ".join(words for words in (bounds, self._plan.condition) if words)
        yield from rows.read(condition, (*ends, *self._plan.values), spool)

    def malformed_rows(self) -> MalformedRows:
        """Rows with a value that does not fit its column."""
        return MalformedRows(str(self.database.address))

    def _columns(self, database: Database) -> dict[str, StoredColumn]:
        names = [column.name for column in self._table.stored]
        by = self._options.get("scan.partition.column")
        with database.connection() as connection:
            return find_columns(connection, self._what, self._options["table-name"], [*names, *([by] if by else [])])

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
