"""The formats of files: each takes record batches and writes them to one file."""

from __future__ import annotations

from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from millstream.streams.plan.types import Schema, TypeKind
from millstream.streams.spark.sinks.bodies import body_encoder
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.csv_bodies import csv_dialect

__all__ = ["FORMATS", "FileOutput", "text_column"]


class FileOutput(Protocol):
    """One file in one format; closing it leaves the file itself open."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows of the schema."""
        ...

    def close(self) -> None:
        """Write what was held back."""
        ...


class _JsonLines:
    def __init__(self, file: BinaryIO, schema: Schema, text: BodyFormat) -> None:
        self._file = file
        self._schema = schema
        self._iso = text.option("timestamp-format.standard").upper() == "ISO-8601"

    def write(self, rows: pa.RecordBatch) -> None:
        lines = encode_rows(rows, self._schema, iso_times=self._iso)
        self._file.write(b"".join(line + b"\n" for line in lines))

    def close(self) -> None:
        """Nothing is held back."""


class _Csv:
    """No header, quotes where they are needed, NULL is blank or a literal, nested values are JSON text: Flink's CSV."""

    def __init__(self, file: BinaryIO, schema: Schema, text: BodyFormat) -> None:
        self._file = file
        self._schema = schema
        # Arrow writes no literals.
        self._encode = body_encoder(text, schema) if text.option("null-literal") else None
        delimiter = csv_dialect(text)["delimiter"]
        self._options = pa.csv.WriteOptions(include_header=False, quoting_style="needed", delimiter=delimiter)

    def write(self, rows: pa.RecordBatch) -> None:
        if self._encode is not None:
            self._file.write(b"".join(line + b"\n" for line in self._encode(rows, ())))
            return
        columns = [
            text_column(column, Schema((field,)))
            for column, field in zip(rows.columns, self._schema.fields, strict=True)
        ]
        pa.csv.write_csv(pa.RecordBatch.from_arrays(columns, names=list(self._schema.names)), self._file, self._options)

    def close(self) -> None:
        """Nothing is held back."""


_PLAIN_IN_CSV = frozenset(
    kind
    for kind in TypeKind
    if kind.value in "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL STRING DATE".split()
)


def text_column(column: pa.Array, schema: Schema) -> pa.Array:
    """The values of the one column of `schema` as CSV has them: a plain column, or texts."""
    field = schema.fields[0]
    if field.type.kind in _PLAIN_IN_CSV:
        return column
    values: list[str | None] = []
    for value in encode_rows(pa.RecordBatch.from_arrays([column], names=[field.name]), schema):
        text = value[value.index(b":") + 1 : -1].decode()
        values.append(None if text == "null" else text.strip('"'))
    return pa.array(values, pa.string())


class _Parquet:
    """Times without a zone are stored so, instants in UTC; the file is complete only when it is closed."""

    def __init__(self, file: BinaryIO, schema: Schema, text: BodyFormat) -> None:
        self._file = file
        self._zoneless = [field.type.kind is TypeKind.TIMESTAMP for field in schema.fields]
        self._writer: Any = None

    def write(self, rows: pa.RecordBatch) -> None:
        columns = [
            column.cast(pa.timestamp("us")) if zoneless else column
            for column, zoneless in zip(rows.columns, self._zoneless, strict=True)
        ]
        stored = pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._file, stored.schema)
        self._writer.write_batch(stored)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


FORMATS: dict[str, Any] = {"json": _JsonLines, "csv": _Csv, "parquet": _Parquet}
"""The file formats by name: each is made of a file, the schema of its rows, and the format with its options."""
