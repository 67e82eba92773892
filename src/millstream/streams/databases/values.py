"""Values between a job and a database: each driver has forms of its own for times, flags and documents."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["UnfitValue", "to_column_value", "to_column_values", "to_statement_value"]

_EPOCH = datetime.datetime(1970, 1, 1)
_NESTED = (TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW)
_documents = msgspec.json.Encoder(decimal_format="number")


class UnfitValue(ValueError):
    """A value that no database takes, such as a time beyond the year 9999."""


def to_statement_value(value: Any, of: DataType) -> Any:
    """A plain value (see `operators.changes`) as a statement takes it. Raises UnfitValue.

    Times are texts in UTC, arrays, maps and rows are documents in JSON.
    """
    if value is None:
        return None
    if of.kind in _NESTED:
        return _documents.encode(_document(value, of)).decode()
    try:
        return _to_plain_value(value, of)
    except OverflowError:
        raise UnfitValue(f"{value} is beyond the times that {of} can have in a database") from None


def _to_plain_value(value: Any, of: DataType) -> Any:
    match of.kind:
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            return str(_EPOCH + datetime.timedelta(microseconds=value))
        case TypeKind.DATE:
            return str((_EPOCH + datetime.timedelta(days=value)).date())
        case TypeKind.TIME:
            return str((_EPOCH + datetime.timedelta(milliseconds=value)).time())
        case TypeKind.DECIMAL:
            return str(value)
        case _:
            return value


def _document(value: Any, of: DataType) -> Any:
    if value is None:
        return None
    match of.kind:
        case TypeKind.ARRAY:
            return [_document(element, of.elements[0]) for element in value]
        case TypeKind.MAP:
            return {str(key): _document(element, of.elements[1]) for key, element in value}
        case TypeKind.ROW:
            return {field.name: _document(value[field.name], field.type) for field in of.fields}
        case TypeKind.DECIMAL:
            return value
        case _:
            return to_statement_value(value, of)


def to_column_values(row: Sequence[Any], types: Sequence[DataType]) -> list[Any]:
    """The values of a driver's row in the form that columns are read from."""
    return [to_column_value(value, of) for value, of in zip(row, types, strict=True)]


def to_column_value(value: Any, of: DataType) -> Any:
    """A value of a driver in the form that columns are read from: as JSON has it, bytes in base64."""
    if value is None:
        return None
    match of.kind:
        case TypeKind.BOOLEAN:
            return bool(value[-1]) if isinstance(value, bytes) else value if isinstance(value, str) else bool(value)
        case TypeKind.BYTES if isinstance(value, bytes | bytearray | memoryview):
            return base64.b64encode(value).decode()
        case TypeKind.STRING if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        case TypeKind.DECIMAL:
            return value if isinstance(value, Decimal) else str(value)
        case TypeKind.TIME if isinstance(value, datetime.timedelta):
            return str((_EPOCH + value).time())
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ | TypeKind.DATE | TypeKind.TIME:
            return str(value)
        case kind if kind in _NESTED:
            return _to_document(value, of)
        case _:
            return value


def _to_document(value: Any, of: DataType) -> Any:
    """An array of the database itself, or a document as a text or as values."""
    if isinstance(value, str | bytes):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    if of.kind is TypeKind.ARRAY and isinstance(value, list):
        return [to_column_value(element, of.elements[0]) for element in value]
    return value
