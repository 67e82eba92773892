"""Converts values of typed formats (Avro, Protocol Buffers) to column values.

Texts and numbers are taken as the JSON format takes them; what does not fit raises ValueError.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.arrow_types import arrow_type
from millstream.streams.spark.source.values import Converter, converter

__all__ = ["MAX_REASON_CHARACTERS", "column_of", "typed_converter"]

MAX_REASON_CHARACTERS = 200
"""Characters of the reason that a malformed message is given at most."""

_MILLISECOND_PRECISION = 3


def typed_converter(data_type: DataType) -> Converter:
    """A function from a value that is not NULL to the column's Python value."""
    match data_type.kind:
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            return _moment(data_type)
        case TypeKind.DATE | TypeKind.TIME | TypeKind.BYTES | TypeKind.STRING:
            return _own(data_type)
        case TypeKind.ARRAY:
            return _array(typed_converter(data_type.elements[0]))
        case TypeKind.MAP:
            return _map(*map(typed_converter, data_type.elements))
        case TypeKind.ROW:
            return _row({field.name: typed_converter(field.type) for field in data_type.fields})
        case _:
            return converter(data_type)


def column_of(
    name: str, data_type: DataType, convert: Converter, values: Sequence[Any], reasons: dict[int, str]
) -> pa.Array:
    """The column of those values; a place with one that does not fit gets a reason and NULL."""
    converted: list[Any] = []
    for place, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            reasons.setdefault(place, f"{name}: {error}"[:MAX_REASON_CHARACTERS])
            converted.append(None)
    return pa.array(converted, arrow_type(data_type))


def _moment(data_type: DataType) -> Converter:
    text = converter(data_type)
    precision = _MILLISECOND_PRECISION if data_type.precision is None else data_type.precision

    def convert(value: Any) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            moment: datetime.datetime = text(value)
            return moment
        moment = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
        if precision > _MILLISECOND_PRECISION:
            return moment
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    return convert


def _own(data_type: DataType) -> Converter:
    """Values that the formats have themselves: dates, times of the day, bytes; else texts, as JSON has them."""
    kind, text = data_type.kind, converter(data_type)

    def convert(value: Any) -> Any:
        if kind is TypeKind.DATE and isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            return value
        if kind is TypeKind.TIME and isinstance(value, datetime.time):
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        if kind is TypeKind.TIME and isinstance(value, int) and 0 <= value < 86_400_000:
            return value
        if kind is TypeKind.BYTES and isinstance(value, bytes):
            return value
        if kind is TypeKind.STRING and isinstance(value, bytes | datetime.date | datetime.time):
            raise ValueError(f"{type(value).__name__} is no STRING")
        return text(str(value) if isinstance(value, uuid.UUID) else value)

    return convert


def _array(element: Converter) -> Converter:
    def convert(value: Any) -> list[Any]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise ValueError(f"{type(value).__name__} is no ARRAY")
        return [None if item is None else element(item) for item in value]

    return convert


def _map(key: Converter, element: Converter) -> Converter:
    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise ValueError(f"{type(value).__name__} is no MAP")
        return [(key(name), None if item is None else element(item)) for name, item in value.items()]

    return convert


def _row(fields: dict[str, Converter]) -> Converter:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{type(value).__name__} is no ROW")
        return {name: None if (item := value.get(name)) is None else field(item) for name, field in fields.items()}

    return convert
