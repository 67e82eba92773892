"""The rows of a part of a table as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from millstream.streams.databases.database import Connection, Database
from millstream.streams.databases.failure import DatabaseFailure
from millstream.streams.databases.retry import DatabaseRetry
from millstream.streams.databases.values import found_value
from millstream.streams.spark.source.database.spec import QUEUE, DatabaseSpec
from millstream.streams.spark.source.decoder import ColumnBuilder, DecodedRows, decoded_rows
from millstream.streams.spark.source.malformed import MalformedWriter
from millstream.streams.spark.types import arrow_schema

__all__ = ["DatabaseRows"]

_CONNECT_LIMIT_S = 60.0


class DatabaseRows:
    """Makes record batches of exactly `schema`, one of each chunk of rows."""

    def __init__(self, spec: DatabaseSpec, database: Database) -> None:
        self.schema: pa.Schema = arrow_schema(spec.schema())
        self._spec = spec
        self._database = database
        self._builders = [ColumnBuilder("", column.name, column.type) for column in spec.columns]

    def read(self, part: int, spool: MalformedWriter) -> Iterator[pa.RecordBatch]:
        """The rows of a part; those with a value that does not fit its column go to `spool`.

        Raises JobError DATABASE_UNREACHABLE and the like.
        """
        try:
            connection = DatabaseRetry(self._spec.retries, _CONNECT_LIMIT_S).run(self._database.connect)
            try:
                yield from self._chunks(connection, part, spool)
            finally:
                connection.close()
        except DatabaseFailure as failure:
            raise failure.job_error(f"The table {self._spec.name} cannot be read") from None

    def _chunks(self, connection: Connection, part: int, spool: MalformedWriter) -> Iterator[pa.RecordBatch]:
        spec = self._spec
        bounds, ends = spec.parts.condition(self._database, part)
        condition = " AND ".join(words for words in (bounds, spec.condition) if words)
        query = self._database.select(spec.table, spec.stored, condition)
        first = 0
        for rows in connection.rows_in_chunks(query, (*ends, *spec.values), spec.chunk_rows):
            decoded = self._decoded(rows)
            for refused in decoded.malformed:
                spool.add(first + refused.position, refused.reason, b"")
            first += len(rows)
            count = len(rows) if decoded.kept is None else len(decoded.kept)
            if count:
                yield self._batch(count, decoded.columns)
        spool.finish()

    def _decoded(self, rows: Sequence[Sequence[Any]]) -> DecodedRows:
        reasons: dict[int, str] = {}
        columns = []
        for place, (builder, column) in enumerate(zip(self._builders, self._spec.columns, strict=True)):
            values = [found_value(row[place], column.type) for row in rows]
            columns.append(builder.build_values(values, reasons))
        return decoded_rows(columns, reasons, len(rows))

    def _batch(self, count: int, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        arrays = list(columns)
        if self._spec.queues:
            arrays.append(pa.repeat(QUEUE, count))
        arrays.append(pa.nulls(count, self.schema.field(len(arrays)).type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
