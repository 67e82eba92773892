"""Rows to JSON objects as Flink's JSON format writes them."""

from __future__ import annotations

import base64
import decimal
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.plan.types import DataType, Schema, TypeKind

__all__ = ["encode_rows", "json_text", "python_values"]


_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS = (-719_162, 2_932_896)


def python_values(column: pa.Array) -> list[Any]:
    """The values of `column`, None for NULL."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = _within_python(column).to_pylist()
    return values


def _within_python(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        numbers, (first, last) = column.cast(pa.int64()), _MICROSECONDS
    elif pa.types.is_date32(column.type):
        numbers, (first, last) = column.cast(pa.int32()), _DAYS
    else:
        # A nested time: the whole value goes.
        return pa.nulls(len(column), column.type)
    fits = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    return pc.if_else(fits, column, pa.scalar(None, column.type))


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def encode_rows(rows: pa.RecordBatch, schema: Schema, *, iso_times: bool = False) -> list[bytes]:
    """One JSON text per row; times with a T in the middle where `iso_times`."""
    time = _iso_time if iso_times else _sql_time
    columns = [_values(column, field.type, time) for column, field in zip(rows.columns, schema.fields, strict=True)]
    names = schema.names
    encode = _ENCODER.encode
    return [encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def json_text(data_type: DataType) -> Callable[[Any], str]:
    """What makes the text of a value of such a column as JSON has it, without quotes."""
    convert = _converter(data_type, _sql_time)

    def text(value: Any) -> str:
        plain = msgspec.to_builtins(value if convert is None else convert(value), builtin_types=(decimal.Decimal,))
        if isinstance(plain, str):
            return plain
        return f"{plain:f}" if isinstance(plain, decimal.Decimal) else _ENCODER.encode(plain).decode()

    return text


def _values(column: pa.Array, data_type: DataType, time: Callable[[Any], str]) -> list[Any]:
    values: list[Any] = python_values(column)
    convert = _converter(data_type, time)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(data_type: DataType, time: Callable[[Any], str]) -> Callable[[Any], Any] | None:
    """How a Python value becomes one that JSON has; None where it is one already."""
    match data_type.kind:
        case TypeKind.TIMESTAMP:
            return time
        case TypeKind.TIMESTAMP_LTZ:
            return lambda value: time(value) + "Z"
        case TypeKind.TIME:
            return _clock
        case TypeKind.VARIANT:
            return lambda value: msgspec.Raw(value.encode())
        case TypeKind.BYTES:
            return lambda value: base64.b64encode(value).decode()
        case TypeKind.ARRAY:
            element = _converter(data_type.elements[0], time)
            return None if element is None else lambda values: [_or_null(element, value) for value in values]
        case TypeKind.MAP:
            return _map(_converter(data_type.elements[1], time))
        case TypeKind.ROW:
            return _row({field.name: _converter(field.type, time) for field in data_type.fields})
        case _:
            return None


def _iso_time(value: Any) -> str:
    return _sql_time(value).replace(" ", "T")


def _sql_time(value: Any) -> str:
    text = value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    return f"{text}.{value.microsecond:06d}".rstrip("0") if value.microsecond else text


def _clock(milliseconds: int) -> str:
    seconds, fraction = divmod(milliseconds, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:03d}".rstrip("0") if fraction else text


def _or_null(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _map(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if convert is None:
        return dict
    return lambda pairs: {key: _or_null(convert, value) for key, value in pairs}


def _row(fields: dict[str, Callable[[Any], Any] | None]) -> Callable[[Any], Any] | None:
    converted = {name: convert for name, convert in fields.items() if convert is not None}
    if not converted:
        return None
    return lambda row: {
        name: _or_null(converted[name], value) if name in converted else value for name, value in row.items()
    }
