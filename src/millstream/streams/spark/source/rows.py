"""Messages to record batches of a source's schema: JSON fields, metadata columns and the hidden tick column."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from millstream.model import properties as names
from millstream.model.properties import decode_properties
from millstream.protocol.record import RecordParts
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.source.body import plain_body
from millstream.streams.spark.source.decoder import JsonDecoder, Malformed
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec
from millstream.streams.spark.source.values import converter
from millstream.streams.spark.types import arrow_schema

__all__ = ["METADATA_KEYS", "RowBuilder"]

_FROM_RECORD: dict[str, Callable[[RecordParts], Any]] = {
    "queue-id": lambda record: record.queue_id,
    "queue-offset": lambda record: record.queue_offset,
    "born-timestamp": lambda record: record.born_timestamp_ms,
    "store-timestamp": lambda record: record.store_timestamp_ms,
}
_FROM_PROPERTIES: dict[str, Callable[[dict[str, str]], Any]] = {
    "message-id": lambda properties: properties.get(names.UNIQUE_KEY),
    "keys": lambda properties: tuple(properties.get(names.KEYS, "").split()) or None,
    "tag": lambda properties: properties.get(names.TAGS),
    "properties": lambda properties: {name: value for name, value in properties.items() if name not in names.RESERVED},
}

METADATA_KEYS = frozenset((*_FROM_RECORD, *_FROM_PROPERTIES, "topic"))
"""The keys that METADATA FROM may name."""


class RowBuilder:
    """Makes record batches of exactly `schema`; malformed messages are left out and told."""

    def __init__(self, spec: SourceSpec) -> None:
        self.schema: pa.Schema = arrow_schema(spec.schema())
        self._topic = spec.topic
        self._columns = spec.columns
        self._decoder = JsonDecoder([(column.name, column.type) for column in spec.columns if column.metadata is None])
        self._needs_properties = any(column.metadata in _FROM_PROPERTIES for column in spec.columns)

    def build(self, records: Sequence[RecordParts]) -> tuple[pa.RecordBatch, tuple[Malformed, ...]]:
        """The rows of `records` in their order, and those that are none (by their place)."""
        decoded = self._decoder.decode([plain_body(record) for record in records])
        if decoded.kept is not None:
            records = [records[position] for position in decoded.kept.to_pylist()]
        properties = [decode_properties(record.properties) for record in records] if self._needs_properties else []
        from_body = iter(decoded.columns)
        arrays: list[pa.Array] = []
        for number, column in enumerate(self._columns):
            if column.metadata is None:
                arrays.append(next(from_body))
            else:
                values = self._metadata(column.metadata, records, properties)
                arrays.append(_metadata_array(values, column, self.schema.field(number).type))
        arrays.append(pa.nulls(len(records), self.schema.field(len(arrays)).type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), decoded.malformed

    def tick(self, time_ms: int) -> pa.RecordBatch:
        """One row that is no data: it moves event time to `time_ms`."""
        moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
        arrays = [pa.nulls(1, field.type) for field in list(self.schema)[:-1]]
        arrays.append(pa.array([moment], self.schema.field(len(arrays)).type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _metadata(self, key: str, records: Sequence[RecordParts], properties: list[dict[str, str]]) -> Iterable[Any]:
        if key in _FROM_RECORD:
            return map(_FROM_RECORD[key], records)
        if key in _FROM_PROPERTIES:
            return map(_FROM_PROPERTIES[key], properties)
        return [self._topic] * len(records)


def _metadata_array(values: Iterable[Any], column: SourceColumn, arrow_type: pa.DataType) -> pa.Array:
    convert = _metadata_converter(column.type)
    return pa.array([None if value is None else convert(value) for value in values], arrow_type)


def _metadata_converter(data_type: DataType) -> Callable[[Any], Any]:
    """From a text, a number, a list of keys or properties to the declared type."""
    match data_type.kind:
        case TypeKind.STRING:
            return lambda value: " ".join(value) if isinstance(value, tuple) else str(value)
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            return lambda value: datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
        case TypeKind.ARRAY:
            return list
        case TypeKind.MAP:
            return lambda value: list(value.items())
        case _:
            return converter(data_type)
