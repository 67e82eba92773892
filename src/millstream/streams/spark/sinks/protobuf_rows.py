"""Rows to bodies of Protocol Buffers: NULL is a field that is not there, as Flink's format writes it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from millstream.streams.errors import JobError
from millstream.streams.plan.types import DataType, Schema, TypeKind
from millstream.streams.spark.sinks.json_rows import json_text, python_values
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.protobuf_types import TIMESTAMP, FieldType, is_map, message_class

__all__ = ["ProtobufEncoder"]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND: Final = datetime.timedelta(seconds=1)

_Setter = Callable[[Any, Any], None]
"""Puts a value that is not NULL into a message."""


class ProtobufEncoder:
    """Makes one body of each row. Raises JobError SINK_FAILED for values that a field does not take."""

    def __init__(self, text: BodyFormat, schema: Schema) -> None:
        self._class = message_class(text)
        null = text.options.get("protobuf.write-null-string-literal", "")
        fields: dict[str, FieldType] = dict(self._class.DESCRIPTOR.fields_by_name)
        self._setters = [(field.name, _setter(fields[field.name], field.type, null)) for field in schema.fields]

    def __call__(self, rows: pa.RecordBatch, _kinds: Sequence[int]) -> list[bytes]:
        """The bodies of `rows`, in their order."""
        columns = [python_values(column) for column in rows.columns]
        return [self._body(row) for row in zip(*columns, strict=True)]

    def _body(self, row: Sequence[Any]) -> bytes:
        message = self._class()
        for (name, put), value in zip(self._setters, row, strict=True):
            if value is None:
                continue
            try:
                put(message, value)
            except (ValueError, TypeError, LookupError) as error:
                words = f"A value of {name} does not fit {self._class.DESCRIPTOR.full_name}: {error}."
                raise JobError("SINK_FAILED", words) from None
        return message.SerializeToString()


def _setter(field: FieldType, kind: DataType, null: str) -> _Setter:
    name = field.name
    if is_map(field):
        return _map_setter(field, kind, null)
    if field.is_repeated:
        return _list_setter(field, kind.elements[0], null)
    if field.message_type is not None:
        fill = _filler(field, kind, null)

        def put_message(message: Message, value: Any) -> None:
            held = getattr(message, name)
            held.SetInParent()
            fill(held, value)

        return put_message
    convert = _scalar(field, kind)
    return lambda message, value: setattr(message, name, convert(value))


def _list_setter(field: FieldType, kind: DataType, null: str) -> _Setter:
    name = field.name
    if field.message_type is not None:
        fill = _filler(field, kind, null)

        def put_messages(message: Message, values: Any) -> None:
            for value in values:
                held = getattr(message, name).add()
                if value is not None:
                    fill(held, value)

        return put_messages
    convert, blank = _scalar(field, kind), _blank(field, null)

    def put(message: Message, values: Any) -> None:
        getattr(message, name).extend([blank if value is None else convert(value) for value in values])

    return put


def _map_setter(field: FieldType, kind: DataType, null: str) -> _Setter:
    name, entry = field.name, field.message_type.fields_by_name
    key = _scalar(entry["key"], kind.elements[0])
    of = entry["value"]
    if of.message_type is not None:
        fill = _filler(of, kind.elements[1], null)

        def put_messages(message: Message, pairs: Any) -> None:
            for word, value in pairs:
                held = getattr(message, name)[key(word)]
                if value is not None:
                    fill(held, value)

        return put_messages
    convert, blank = _scalar(of, kind.elements[1]), _blank(of, null)

    def put(message: Message, pairs: Any) -> None:
        for word, value in pairs:
            getattr(message, name)[key(word)] = blank if value is None else convert(value)

    return put


def _filler(field: FieldType, kind: DataType, null: str) -> _Setter:
    """What fills the message of a field."""
    if field.message_type.full_name == TIMESTAMP and kind.is_timestamp:
        return _put_moment
    fields = field.message_type.fields_by_name
    setters = {part.name: _setter(fields[part.name], part.type, null) for part in kind.fields}

    def fill(message: Any, row: Any) -> None:
        for name, value in row.items():
            if value is not None:
                setters[name](message, value)

    return fill


def _put_moment(message: Any, value: datetime.datetime) -> None:
    since = (value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)) - _EPOCH
    message.seconds = since // _SECOND
    message.nanos = (since % _SECOND).microseconds * 1000


def _scalar(field: FieldType, kind: DataType) -> Callable[[Any], Any]:
    """From a Python value of the column to one that the field takes."""
    if field.enum_type is not None:
        numbers = {known.name: known.number for known in field.enum_type.values}
        return lambda value: numbers[value] if isinstance(value, str) and value in numbers else int(value)
    if field.type == FieldDescriptor.TYPE_STRING and kind.kind is not TypeKind.STRING:
        return json_text(kind)
    return lambda value: value


def _blank(field: FieldType, null: str) -> Any:
    """What stands for NULL where a value has to be."""
    return null if field.type == FieldDescriptor.TYPE_STRING else field.default_value
