"""The rows of a part of a table as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from millstream.streams.connectors.row_batches import batch_of
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.databases.database import Connection, Database
from millstream.streams.databases.failure import DatabaseFailure
from millstream.streams.databases.retry import DatabaseRetry
from millstream.streams.databases.values import found_value
from millstream.streams.plan.types import Schema
from millstream.streams.spark.source.formats.decoder import ColumnBuilder, DecodedRows, decoded_rows
from millstream.streams.spark.source.malformed import MalformedWriter
from millstream.streams.spark.translation.types import arrow_schema, spark_schema

__all__ = ["DatabaseRows"]

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
        self, connection: Connection, condition: str, values: Sequence[Any], spool: MalformedWriter
    ) -> Iterator[pa.RecordBatch]:
        query = self._database.select(self._named, self._stored, condition)
        first = 0
        for rows in connection.rows_in_chunks(query, tuple(values), self._chunk_rows):
            decoded = self._decoded(rows)
            for refused in decoded.malformed:
                spool.add(first + refused.position, refused.reason, b"")
            first += len(rows)
            count = len(rows) if decoded.kept is None else len(decoded.kept)
            if count:
                yield batch_of(decoded.columns, self.schema, count)
        spool.finish()

    def _decoded(self, rows: Sequence[Sequence[Any]]) -> DecodedRows:
        reasons: dict[int, str] = {}
        columns = []
        for place, (builder, column) in enumerate(zip(self._builders, self._table.columns, strict=True)):
            values = [found_value(row[place], column.type) for row in rows]
            columns.append(builder.build_values(values, reasons))
        return decoded_rows(columns, reasons, len(rows))
