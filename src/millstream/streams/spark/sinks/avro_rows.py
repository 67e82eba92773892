"""Rows to Avro bodies, alone or in the frame of a schema registry."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import DataType, Schema, TypeKind
from millstream.streams.spark.sinks.values import python_values
from millstream.streams.spark.source.formats.avro_schema import (
    avro_fields,
    is_framed,
    parsed,
    says_changes,
    schema_text,
)
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.schema_registry import frame, registry_of

__all__ = ["AvroEncoder"]


_GONE = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)


class AvroEncoder:
    """Makes one body of each row. Raises JobError SINK_FAILED for values that the schema does not take."""

    def __init__(self, text: BodyFormat, schema: Schema) -> None:
        self._text = text
        self._names = schema.names
        self._convert = [_converter(field.type) for field in schema.fields]
        self._schema_text = schema_text(text)
        self._wraps = says_changes(text)
        named = ("before", "after", "op") if self._wraps else schema.names
        unknown = [name for name in named if name not in avro_fields(parsed(self._schema_text))]
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
            fastavro.schemaless_writer(content, parsed(self._schema_text), record)
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise JobError("SINK_FAILED", f"A row does not fit the Avro schema: {error}.") from None
        return content.getvalue()


def _envelope(record: dict[str, Any], kind: int) -> dict[str, Any]:
    """What Debezium says of the row. Source: Flink writes an update as a row that is gone and one that is new."""
    if kind in _GONE:
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
