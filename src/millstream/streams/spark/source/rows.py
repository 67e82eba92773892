"""Converts messages to record batches: JSON fields, metadata columns and the hidden tick column."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.types import arrow_schema
from millstream.streams.spark.source.formats.decoder import Malformed
from millstream.streams.spark.source.formats.keyed_rows import KeyedRows, body_decoder
from millstream.streams.spark.source.messages import METADATA_KEYS, Messages, RecordMessages
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec
from millstream.streams.spark.source.values import converter

__all__ = [
    "END_OF_TIME_MS",
    "METADATA_KEYS",
    "WAKE_TIME_MS",
    "MessageRows",
    "RowBuilder",
    "metadata_column",
    "tick_between",
    "tick_row",
]


END_OF_TIME_MS: Final = 253_370_764_800_000
"""Event time of the final tick: the year 9999, later than any window's end."""

WAKE_TIME_MS: Final = -62_135_596_800_000
"""Event time of a tick that only wakes a job: the year 1, which moves nothing. Behind a final tick event time goes on
with it from where the rows before that had brought it."""


def tick_between(begin: Position, until: Position) -> int | None:
    """The event time of the tick that a micro-batch brings beside its rows, if it does: where a run ends or goes on."""
    if begin.ended == until.ended:
        return None
    return END_OF_TIME_MS if until.ended else WAKE_TIME_MS


_MICROSECONDS = 1000
"""In a millisecond; Spark's timestamps count microseconds."""


class MessageRows(Protocol):
    """Makes rows of messages."""

    schema: pa.Schema

    def rows(self, messages: Messages, queue: str = "") -> tuple[pa.RecordBatch, tuple[Malformed, ...]]:
        """The rows of `messages` of one queue, and those messages that give none (by their place)."""
        ...

    def tick(self, time_ms: int) -> pa.RecordBatch:
        """One row that is no data: it moves event time to `time_ms`."""
        ...


class RowBuilder:
    """Makes record batches of exactly `schema`; malformed messages are left out and told."""

    def __init__(self, spec: SourceSpec) -> None:
        self.schema: pa.Schema = arrow_schema(spec.schema())
        self._topic = spec.topic
        self._columns = spec.columns
        self._queues = spec.queues
        self._changes = spec.changes
        fields = [(column.name, column.type) for column in spec.columns if column.metadata is None]
        self._keyed: KeyedRows | None = None
        if spec.key is not None:
            self._keyed = KeyedRows(spec.body, spec.key, fields, upserts=spec.upserts)
        else:
            self._decoder = body_decoder(spec.body, fields)

    def build(self, records: Sequence[memoryview]) -> tuple[pa.RecordBatch, tuple[Malformed, ...]]:
        """The rows of records that were pulled; see `rows`."""
        return self.rows(RecordMessages(records))

    def rows(self, messages: Messages, queue: str = "") -> tuple[pa.RecordBatch, tuple[Malformed, ...]]:
        """The rows of `messages` of one queue in their order, and those that are none (by their place)."""
        keyed = self._keyed
        decoded = self._decoder.decode(messages.bodies()) if keyed is None else keyed.decode(messages)
        if decoded.kept is not None:
            messages = messages.keep(decoded.kept)
        from_body = iter(decoded.columns)
        arrays: list[pa.Array] = []
        for number, column in enumerate(self._columns):
            if column.metadata is None:
                arrays.append(next(from_body))
            else:
                arrays.append(metadata_column(self._topic, messages, column, self.schema.field(number).type))
        if self._queues:
            arrays.append(pa.repeat(queue, len(messages)))
        if self._changes:
            arrays.append(pa.repeat(pa.scalar(0, pa.int8()), len(messages)) if decoded.kinds is None else decoded.kinds)
        arrays.append(pa.nulls(len(messages), self.schema.field(len(arrays)).type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), decoded.malformed

    def tick(self, time_ms: int) -> pa.RecordBatch:
        """One row that is no data: it moves event time to `time_ms`."""
        return tick_row(self.schema, time_ms)


def metadata_column(topic: str, messages: Messages, column: SourceColumn, arrow_type: pa.DataType) -> pa.Array:
    """The values of a metadata column, one for each message."""
    key = column.metadata
    assert key is not None
    if key == "topic":
        return _metadata_array([topic] * len(messages), column, arrow_type)
    numbers = messages.numbers(key)
    if numbers is not None and column.type.kind is TypeKind.BIGINT:
        return numbers
    if numbers is not None and column.type.kind in (TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ):
        return pc.multiply(numbers, _MICROSECONDS).cast(arrow_type)
    return _metadata_array(messages.metadata(key), column, arrow_type)


def tick_row(schema: pa.Schema, time_ms: int) -> pa.RecordBatch:
    """One row of NULLs but for the hidden tick, which is the last column."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    arrays = [pa.nulls(1, field.type) for field in list(schema)[:-1]]
    arrays.append(pa.array([moment], schema.field(len(arrays)).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
