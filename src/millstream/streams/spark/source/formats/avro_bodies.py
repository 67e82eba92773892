"""Decodes Avro bodies to Arrow columns by field name, with the table's or a registry's schema."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.formats.avro_schema import is_framed, parse_schema, schema_text
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.decoder import DecodedRows, decoded_rows
from millstream.streams.spark.source.formats.schema_registry import FRAME_BYTES, framed_schema, registry_of
from millstream.streams.spark.source.formats.typed_values import MAX_REASON_CHARACTERS, column_of, typed_converter

__all__ = ["UNREADABLE", "AvroDecoder", "AvroRecords"]

UNREADABLE = (EOFError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError)
"""What the bytes of a body may raise that are no record of the schema."""


class AvroRecords:
    """Records of bodies, with the schema of the table or, in frames, that of the registry."""

    def __init__(self, text: BodyFormat) -> None:
        import fastavro

        self._read: Callable[[io.BytesIO, Any, None], Any] = fastavro.schemaless_reader
        self._registry = registry_of(text) if is_framed(text) else None
        self._schema = parse_schema(schema_text(text)) if self._registry is None else None

    def read(self, body: bytes | memoryview) -> dict[str, Any]:
        """The record of a body. Raises one of `UNREADABLE`; Unreachable where the registry is away."""
        schema, start = self._schema, 0
        if self._registry is not None:
            schema, start = self._registry.schema(framed_schema(body)), FRAME_BYTES
        content = io.BytesIO(body[start:])
        try:
            record: dict[str, Any] = self._read(content, schema, None)
        except EOFError:
            raise ValueError("the body ends within the record") from None
        behind = len(body) - start - content.tell()
        if behind:
            raise ValueError(f"{behind} bytes stand behind the record")
        return record


class AvroDecoder:
    """Decodes bodies to the columns of `fields`; one that the schema has not is NULL."""

    def __init__(self, text: BodyFormat, fields: Sequence[tuple[str, DataType]]) -> None:
        self._records = AvroRecords(text)
        self._columns = [(name, kind, typed_converter(kind)) for name, kind in fields]

    def decode(self, bodies: Sequence[bytes | memoryview]) -> DecodedRows:
        """The rows of `bodies`, in their order, without the malformed ones."""
        reasons: dict[int, str] = {}
        records: list[dict[str, Any]] = []
        for place, body in enumerate(bodies):
            try:
                records.append(self._records.read(body))
            except UNREADABLE as error:
                reasons[place] = f"{error or type(error).__name__}"[:MAX_REASON_CHARACTERS]
                records.append({})
        columns: list[pa.Array] = [
            column_of(name, kind, convert, [record.get(name) for record in records], reasons)
            for name, kind, convert in self._columns
        ]
        return decoded_rows(columns, reasons, len(records))
