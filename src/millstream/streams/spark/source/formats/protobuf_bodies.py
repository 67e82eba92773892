"""Decodes Protocol Buffers to Arrow columns by field name, as in Flink's format."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.decoder import DecodedRows, decoded_rows
from millstream.streams.spark.source.formats.protobuf_types import (
    TIMESTAMP,
    FieldType,
    MessageType,
    is_map,
    message_class,
)
from millstream.streams.spark.source.formats.typed_values import column_of, typed_converter

__all__ = ["ProtobufDecoder"]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_Value = Callable[[Any], Any]
"""From a field's value to a plain Python value."""


class ProtobufDecoder:
    """Decodes bodies to the columns of `fields`. A field that is not in the body is NULL, or has its default value."""

    def __init__(self, text: BodyFormat, fields: Sequence[tuple[str, DataType]]) -> None:
        self._parse = message_class(text).FromString
        self._blank = message_class(text)()
        fills = text.is_set("read-default-values")
        descriptor: MessageType = self._blank.DESCRIPTOR
        self._columns = [
            (name, kind, _field(descriptor.fields_by_name[name], kind, fills=fills), typed_converter(kind))
            for name, kind in fields
        ]

    def decode(self, bodies: Sequence[bytes | memoryview]) -> DecodedRows:
        """The rows of `bodies`, in their order, without the malformed ones."""
        reasons: dict[int, str] = {}
        messages: list[Message] = []
        for place, body in enumerate(bodies):
            try:
                messages.append(self._parse(bytes(body)))
            except DecodeError as error:
                reasons[place] = f"no message {self._blank.DESCRIPTOR.full_name}: {error}"
                messages.append(self._blank)
        columns = [
            column_of(name, kind, convert, [read(message) for message in messages], reasons)
            for name, kind, read, convert in self._columns
        ]
        return decoded_rows(columns, reasons, len(messages))


def _field(field: FieldType, kind: DataType, *, fills: bool) -> Callable[[Message], Any]:
    """From a message to the field's value; None where it is not there."""
    name = field.name
    if is_map(field):
        value = _value(field.message_type.fields_by_name["value"], kind.elements[1], fills=fills)

        def read_map(message: Message) -> Any:
            held = getattr(message, name)
            return {key: value(held[key]) for key in held} if held or fills else None

        return read_map
    if field.is_repeated:
        element = _value(field, kind.elements[0], fills=fills)

        def read_list(message: Message) -> Any:
            held = getattr(message, name)
            return [element(item) for item in held] if held or fills else None

        return read_list
    value = _value(field, kind, fills=fills)
    has_default = not field.has_presence or (fills and field.message_type is None)

    def read(message: Message) -> Any:
        return value(getattr(message, name)) if has_default or message.HasField(name) else None

    return read


def _value(field: FieldType, kind: DataType, *, fills: bool) -> _Value:
    message = field.message_type
    if message is not None and message.full_name == TIMESTAMP and kind.is_timestamp:
        return _moment
    if message is not None:
        parts = [(part.name, _field(message.fields_by_name[part.name], part.type, fills=fills)) for part in kind.fields]
        return lambda held: {name: read(held) for name, read in parts}
    if field.enum_type is not None and kind.kind is TypeKind.STRING:
        names = {number: known.name for number, known in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return _same


def _moment(value: Any) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    except OverflowError:
        # A year that no column holds: the converter refuses the number.
        return value.seconds  # type: ignore[no-any-return]


def _same(value: Any) -> Any:
    return value
