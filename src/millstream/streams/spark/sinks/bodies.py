"""Rows to bodies and keys of messages, in the formats of Flink's connectors."""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import DataType, Field, Schema, TypeKind
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.spark.sinks.values import python_values
from millstream.streams.spark.source.formats.body_format import CHANGELOG_FORMATS, DEBEZIUM_AVRO, BodyFormat
from millstream.streams.spark.source.formats.csv_bodies import csv_dialect
from millstream.streams.spark.source.formats.raw_bodies import NUMBER_LAYOUTS, byte_order

__all__ = ["BodyEncoder", "body_encoder"]

BodyEncoder = Callable[[pa.RecordBatch, Sequence[int]], list[bytes]]
"""Makes one body of each row; the numbers are the rows' kinds."""

_SHORT = {kind.value: kind.short.encode() for kind in RowKind}
_GONE = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)

_WRAPPINGS: dict[str, tuple[tuple[bytes, bytes], tuple[bytes, bytes]]] = {
    "debezium-json": ((b'{"before":null,"after":', b',"op":"c"}'), (b'{"before":', b',"after":null,"op":"d"}')),
    "canal-json": ((b'{"data":[', b'],"type":"INSERT"}'), (b'{"data":[', b'],"type":"DELETE"}')),
    "maxwell-json": ((b'{"data":', b',"type":"insert"}'), (b'{"data":', b',"type":"delete"}')),
}
"""What stands before and behind a row that is there now, and one that is no more. Source: Flink writes updates so."""


def body_encoder(text: BodyFormat, schema: Schema) -> BodyEncoder:
    """The encoder of a format for rows of `schema`. Raises JobError SINK_FAILED for what it cannot hold."""
    if text.name in CHANGELOG_FORMATS and text.name != DEBEZIUM_AVRO:
        return _changes(text, schema)
    match text.name:
        case "csv":
            return _csv(text, schema)
        case "raw":
            return _raw(text, schema)
        case "avro" | "avro-confluent" | "debezium-avro-confluent":
            from millstream.streams.spark.sinks.avro_rows import AvroEncoder

            return AvroEncoder(text, schema)
        case "protobuf":
            from millstream.streams.spark.sinks.protobuf_rows import ProtobufEncoder

            return ProtobufEncoder(text, schema)
        case _:
            iso = _iso(text)
            return lambda rows, _kinds: encode_rows(rows, schema, iso_times=iso)


def _iso(text: BodyFormat) -> bool:
    return text.option("timestamp-format.standard").upper() == "ISO-8601"


def _changes(text: BodyFormat, schema: Schema) -> BodyEncoder:
    iso = _iso(text)
    if text.name == "changelog-json":
        return lambda rows, kinds: [
            b'{"op":"' + _SHORT[kind] + b'","data":' + row + b"}"
            for row, kind in zip(encode_rows(rows, schema, iso_times=iso), kinds, strict=True)
        ]
    (before, behind), (before_gone, behind_gone) = _WRAPPINGS[text.name]
    return lambda rows, kinds: [
        before_gone + row + behind_gone if kind in _GONE else before + row + behind
        for row, kind in zip(encode_rows(rows, schema, iso_times=iso), kinds, strict=True)
    ]


def _csv(text: BodyFormat, schema: Schema) -> BodyEncoder:
    null = text.options.get("csv.null-literal", "")
    mark = text.option("array-element-delimiter", ";")
    dialect = csv_dialect(text)

    def encode(rows: pa.RecordBatch, _kinds: Sequence[int]) -> list[bytes]:
        columns = [
            [_csv_text(value, null, mark) for value in _json_values(column, field)]
            for column, field in zip(rows.columns, schema.fields, strict=True)
        ]
        lines = []
        for row in zip(*columns, strict=True):
            line = io.StringIO()
            try:
                csv.writer(line, lineterminator="", **dialect).writerow(row)
            except csv.Error as error:
                words = f"A row cannot be written as CSV: {error}."
                raise JobError("SINK_FAILED", words, remedy="Set 'csv.escape-character', or allow quotes.") from None
            lines.append(line.getvalue().encode())
        return lines

    return encode


def _json_values(column: pa.Array, field: Field) -> list[Any]:
    """The values as JSON has them; numbers keep their digits."""
    if field.type.kind is TypeKind.STRING:
        return python_values(column)
    rows = pa.RecordBatch.from_arrays([column], names=[field.name])
    texts = encode_rows(rows, Schema((field,)))
    if field.type.is_number:
        return [None if (text := row[row.index(b":") + 1 : -1].decode()) == "null" else text for row in texts]
    return [next(iter(msgspec.json.decode(text).values())) for text in texts]


def _csv_text(value: Any, null: str, mark: str) -> str:
    match value:
        case None:
            return null
        case bool():
            return "true" if value else "false"
        case list():
            return mark.join(_csv_text(item, null, mark) for item in value)
        case dict():
            return mark.join(_csv_text(item, null, mark) for item in value.values())
    return str(value)


def _raw(text: BodyFormat, schema: Schema) -> BodyEncoder:
    (field,) = schema.fields
    write = _raw_writer(text, field.type)
    return lambda rows, _kinds: [b"" if value is None else write(value) for value in python_values(rows.column(0))]


def _raw_writer(text: BodyFormat, kind: DataType) -> Callable[[Any], bytes]:
    if kind.kind is TypeKind.STRING:
        return str.encode
    if kind.kind is TypeKind.BYTES:
        return bytes
    if kind.kind in NUMBER_LAYOUTS:
        return struct.Struct(byte_order(text) + NUMBER_LAYOUTS[kind.kind]).pack
    raise JobError("SINK_FAILED", f"The format raw holds no {kind}.")
