"""Row values in the notation of Flink's REST API: JSON by type, or plain text."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.sql.shell.result_table import cell_text

__all__ = ["RowFormat", "row_writer"]

_EXACT_DIGITS: Final = 15
"""Digits that a JSON number keeps in every reader; a longer DECIMAL is written as a text."""

_TEXT_OF_NUMBER: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}

Convert = Callable[[Any], Any]


class RowFormat(Enum):
    """How values are written. JSON_OF_TYPES is Flink's JSON; PLAIN_TEXT has the text that a cast to STRING gives."""

    JSON_OF_TYPES = "JSON"
    PLAIN_TEXT = "PLAIN_TEXT"


def row_writer(
    types: Sequence[DataType], row_format: RowFormat, zone: datetime.tzinfo = datetime.UTC
) -> Callable[[Sequence[object]], list[Any]]:
    """What makes the `fields` of a row. Plain texts show instants in `zone`; JSON has them in UTC."""
    if row_format is RowFormat.PLAIN_TEXT:
        return lambda row: [None if value is None else cell_text(_local(value, zone)) for value in row]
    converters = [_converter(data_type) for data_type in types]
    return lambda row: [convert(value) for convert, value in zip(converters, row, strict=True)]


def _local(value: Any, zone: datetime.tzinfo) -> Any:
    """The value with its instants as the clock of `zone` shows them: Flink's texts have no offset."""
    match value:
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(zone).replace(tzinfo=None)
        case list():
            return [_local(item, zone) for item in value]
        case tuple():
            return tuple(_local(item, zone) for item in value)
        case dict():
            return {name: _local(item, zone) for name, item in value.items()}
        case _:
            return value


def _converter(data_type: DataType) -> Convert:
    convert = _converter_of_value(data_type)
    return lambda value: None if value is None else convert(value)


def _converter_of_value(data_type: DataType) -> Convert:
    match data_type.kind:
        case TypeKind.ARRAY:
            element = _converter(data_type.elements[0])
            return lambda values: [element(value) for value in values]
        case TypeKind.MAP:
            return _pairs_converter(*data_type.elements)
        case TypeKind.ROW:
            parts = [(field.name, _converter(field.type)) for field in data_type.fields]
            return lambda row: {name: convert(row.get(name)) for name, convert in parts}
        case _:
            return _SIMPLE.get(data_type.kind, lambda value: value)


def _pairs_converter(key_type: DataType, value_type: DataType) -> Convert:
    """A MAP comes as pairs; the keys of a JSON object are texts."""
    value_of = _converter(value_type)
    if key_type.kind is TypeKind.STRING:
        return lambda pairs: {"null" if key is None else key: value_of(value) for key, value in pairs}
    return lambda pairs: {cell_text(key): value_of(value) for key, value in pairs}


def _number(value: float) -> float | str:
    """JSON has no numbers that are none; Flink writes them as texts."""
    return value if math.isfinite(value) else _TEXT_OF_NUMBER.get(value, "NaN")


def _decimal(value: decimal.Decimal) -> float | int | str:
    if len(value.as_tuple().digits) > _EXACT_DIGITS:
        return f"{value:f}"
    return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else float(value)


def _clock(value: datetime.time | int) -> str:
    """Inside of other values a TIME comes as milliseconds of its day."""
    if isinstance(value, int):
        value = (datetime.datetime.min + datetime.timedelta(milliseconds=value)).time()
    return value.isoformat()


def _moment(value: datetime.datetime) -> str:
    moment = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
    return moment.isoformat()


def _milliseconds(value: datetime.timedelta) -> int:
    return round(value / datetime.timedelta(milliseconds=1))


_SIMPLE: Final[dict[TypeKind, Convert]] = {
    TypeKind.FLOAT: _number,
    TypeKind.DOUBLE: _number,
    TypeKind.DECIMAL: _decimal,
    TypeKind.BYTES: lambda value: base64.b64encode(value).decode(),
    TypeKind.DATE: lambda value: value.isoformat(),
    TypeKind.TIME: _clock,
    TypeKind.TIMESTAMP: _moment,
    TypeKind.TIMESTAMP_LTZ: lambda value: _moment(value) + "Z",
    TypeKind.INTERVAL_DAY: _milliseconds,
    TypeKind.STRING: str,
    TypeKind.VARIANT: str,
}
"""What JSON has for values that have no parts; others are written as they are."""
