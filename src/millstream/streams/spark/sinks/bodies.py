"""Rows to bodies and keys of messages, in the formats of Flink's connectors.

Rows to Avro bodies, alone or in the frame of a schema registry.
"""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import DataType, Field, Schema, TypeKind
from millstream.streams.spark.sinks.json_rows import encode_rows, python_values
from millstream.streams.spark.source.formats.avro_schema import (
    avro_fields,
    is_framed,
    parse_schema,
    says_changes,
    schema_text,
)
from millstream.streams.spark.source.formats.body_format import CHANGELOG_FORMATS, DEBEZIUM_AVRO, BodyFormat
from millstream.streams.spark.source.formats.csv_bodies import csv_dialect
from millstream.streams.spark.source.formats.raw_bodies import NUMBER_LAYOUTS, byte_order
from millstream.streams.spark.source.formats.schema_registry import frame, registry_of

__all__ = ["AvroEncoder", "BodyEncoder", "body_encoder"]

_GONE_RECORD = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)


class AvroEncoder:
    """Makes one body of each row. Raises JobError SINK_FAILED for values that the schema does not take."""

    def __init__(self, text: BodyFormat, schema: Schema) -> None:
        self._text = text
        self._names = schema.names
        self._convert = [_converter(field.type) for field in schema.fields]
        self._schema_text = schema_text(text)
        self._wraps = says_changes(text)
        named = ("before", "after", "op") if self._wraps else schema.names
        unknown = [name for name in named if name not in avro_fields(parse_schema(self._schema_text))]
        if unknown:
            words = f"The Avro schema has no field for the column {unknown[0]}, which would be lost."
            raise JobError("SINK_FAILED", words)

    def __call__(self, rows: pa.RecordBatch, kinds: Sequence[int]) -> list[bytes]:
        """The bodies of `rows`, in their order."""
        columns = [
            values if convert is None else [None if value is None else convert(value) for value in values]
            for values, convert in zip(map(python_values, rows.columns), self._convert, strict=True)
        ]
        records = [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]
        if self._wraps:
            return [self._body(_envelope(record, kind)) for record, kind in zip(records, kinds, strict=True)]
        return [self._body(record) for record in records]

    @cached_property
    def _before(self) -> bytes:
        """The frame; the first row asks the registry."""
        if not is_framed(self._text):
            return b""
        subject = self._text.option("subject") or f"{self._text.options.get('topic', '')}-value"
        return frame(registry_of(self._text).register(subject, self._schema_text))

    def _body(self, record: dict[str, Any]) -> bytes:
        import fastavro

        content = io.BytesIO(self._before)
        content.seek(0, io.SEEK_END)
        try:
            fastavro.schemaless_writer(content, parse_schema(self._schema_text), record)
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise JobError("SINK_FAILED", f"A row does not fit the Avro schema: {error}.") from None
        return content.getvalue()


def _envelope(record: dict[str, Any], kind: int) -> dict[str, Any]:
    """What Debezium says of the row. Source: Flink writes an update as a row that is gone and one that is new."""
    if kind in _GONE_RECORD:
        return {"before": record, "after": None, "op": "d"}
    return {"before": None, "after": record, "op": "c"}


def _converter(kind: DataType) -> Callable[[Any], Any] | None:
    """How a Python value becomes one that fastavro writes; None where it is one already."""
    match kind.kind:
        case TypeKind.MAP:
            value = _converter(kind.elements[1]) or _same
            return lambda pairs: {key: None if of is None else value(of) for key, of in pairs}
        case TypeKind.ARRAY:
            element = _converter(kind.elements[0])
            return None if element is None else lambda items: [None if of is None else element(of) for of in items]
        case TypeKind.ROW:
            fields = {field.name: _converter(field.type) or _same for field in kind.fields}
            return lambda row: {name: None if of is None else fields[name](of) for name, of in row.items()}
        case _:
            return None


def _same(value: Any) -> Any:
    return value


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
