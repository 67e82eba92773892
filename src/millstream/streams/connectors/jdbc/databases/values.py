"""Converts values between a job and a database, and checks that column types fit."""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from millstream.streams.plan.types import DataType, TypeKind

__all__ = [
    "UnfitValue",
    "holds",
    "is_day",
    "is_moment",
    "is_text",
    "is_whole",
    "to_column_value",
    "to_column_values",
    "to_statement_value",
]


_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "integer", "bigint", "int2", "int4", "int8"))
_FRACTIONS = frozenset(("decimal", "numeric", "float", "double", "double precision", "real", "number"))
_TEXTS = frozenset(
    (
        "char",
        "character",
        "varchar",
        "character varying",
        "text",
        "tinytext",
        "mediumtext",
        "longtext",
        "bpchar",
        "name",
    )
)
_DOCUMENTS = frozenset(("json", "jsonb"))
_FLAGS = frozenset(("boolean", "bool", "bit"))
_BYTES = frozenset(("bytea", "blob", "tinyblob", "mediumblob", "longblob", "binary", "varbinary"))
_MOMENTS = frozenset(("timestamp", "datetime", "timestamp without time zone", "timestamp with time zone"))
_CLOCKS = frozenset(("time", "time without time zone"))
_DAYS = frozenset(("date",))
_KNOWN = _INTEGERS | _FRACTIONS | _TEXTS | _DOCUMENTS | _FLAGS | _BYTES | _MOMENTS | _CLOCKS | _DAYS

_WHOLE = _INTEGERS | _FRACTIONS
_HOLDERS: Mapping[TypeKind, frozenset[str]] = {
    TypeKind.BOOLEAN: _FLAGS | {"tinyint"},
    TypeKind.TINYINT: _WHOLE,
    TypeKind.SMALLINT: _WHOLE,
    TypeKind.INT: _WHOLE,
    TypeKind.BIGINT: _WHOLE,
    TypeKind.FLOAT: _FRACTIONS,
    TypeKind.DOUBLE: _FRACTIONS,
    TypeKind.DECIMAL: _FRACTIONS | _TEXTS,
    TypeKind.STRING: _TEXTS | _DOCUMENTS,
    TypeKind.BYTES: _BYTES,
    TypeKind.DATE: _DAYS | _MOMENTS | _TEXTS,
    TypeKind.TIME: _CLOCKS | _TEXTS,
    TypeKind.TIMESTAMP: _MOMENTS | _TEXTS,
    TypeKind.TIMESTAMP_LTZ: _MOMENTS | _TEXTS,
    TypeKind.ARRAY: _DOCUMENTS | _TEXTS,
    TypeKind.MAP: _DOCUMENTS | _TEXTS,
    TypeKind.ROW: _DOCUMENTS | _TEXTS,
}


def holds(stored: str, declared: DataType) -> bool:
    """Whether values of `declared` go into a column of the type `stored`, in a database's words.

    A word that is not known here (enum, uuid, inet, a type of the user's) is given the benefit of the doubt; an array
    of the database is none that a job can write.
    """
    if stored.endswith("[]"):
        return False
    word = _word(stored)
    return word not in _KNOWN or word in _HOLDERS.get(declared.kind, _KNOWN)


def is_whole(stored: str) -> bool:
    """Whether the type has whole numbers and nothing else."""
    return _word(stored) in _INTEGERS


def is_text(stored: str) -> bool:
    """Whether the type has texts."""
    return _word(stored) in _TEXTS


def is_day(stored: str) -> bool:
    """Whether the type has dates without a time."""
    return _word(stored) in _DAYS


def is_moment(stored: str) -> bool:
    """Whether the type has dates with a time."""
    return _word(stored) in _MOMENTS


def _word(stored: str) -> str:
    """The type without lengths and marks."""
    return " ".join(re.sub(r"\([^)]*\)|unsigned|zerofill", " ", stored).split())


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
