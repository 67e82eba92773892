"""The rows of one file of a table: lines of JSON or CSV, or a Parquet file's columns by name."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.streams.connectors.row_batches import batch_of
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.plan.local_paths import local_directory
from millstream.streams.plan.partition_names import DEFAULT_NAME, named_values
from millstream.streams.plan.types import Schema
from millstream.streams.spark.source.formats.body_format import BodyColumn, BodyFormat
from millstream.streams.spark.source.formats.decoder import ColumnBuilder
from millstream.streams.spark.source.formats.keyed_rows import body_decoder
from millstream.streams.spark.source.malformed import MalformedWriter
from millstream.streams.spark.translation.types import arrow_schema, spark_schema

__all__ = ["FileRows"]

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
        named = {**_named(path, self._table), **_facts(path, self._table)}
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


def _named(path: Path, table: ConnectedTable) -> dict[str, str | None]:
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
