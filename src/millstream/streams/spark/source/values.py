"""Converts one JSON value to a column value as Flink's JSON format does; invalid ones raise ValueError."""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["Converter", "converter"]

Converter = Callable[[Any], Any]

_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64}
_DEFAULT_DECIMAL = (10, 0)
_MILLISECOND_PRECISION = 3
_MAX_SHOWN = 60


def converter(data_type: DataType) -> Converter:
    """A function from a JSON value that is not null to the column's Python value (None: NULL)."""
    match data_type.kind:
        case TypeKind.TINYINT | TypeKind.SMALLINT | TypeKind.INT | TypeKind.BIGINT as kind:
            return _integer(_BITS[kind])
        case TypeKind.DECIMAL:
            precision, scale = _DEFAULT_DECIMAL
            return _decimal(data_type.precision or precision, data_type.scale or scale)
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            precision = _MILLISECOND_PRECISION if data_type.precision is None else data_type.precision
            return _timestamp(to_milliseconds=precision <= _MILLISECOND_PRECISION)
        case TypeKind.ARRAY:
            return _array(converter(data_type.elements[0]))
        case TypeKind.MAP:
            return _map(*map(converter, data_type.elements))
        case TypeKind.ROW:
            return _row({field.name: converter(field.type) for field in data_type.fields})
        case kind:
            return _PLAIN[kind]


def _misfit(value: object, kind: str) -> ValueError:
    text = repr(value)
    return ValueError(f"{text[:_MAX_SHOWN]}{'...' if len(text) > _MAX_SHOWN else ''} is no {kind}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return str(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("true", "false"):
        raise _misfit(value, "BOOLEAN")
    return bool(word == "true")


def _integer(bits: int) -> Converter:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if isinstance(value, bool | list | dict):
            raise _misfit(value, "integer")
        try:
            number = int(value)
        except (ValueError, OverflowError):
            raise _misfit(value, "integer") from None
        if not -limit <= number < limit:
            raise _misfit(value, f"integer of {bits} bits")
        return number

    return convert


def _float(value: Any) -> float:
    if isinstance(value, bool | list | dict):
        raise _misfit(value, "number")
    try:
        return float(value)
    except ValueError:
        raise _misfit(value, "number") from None


def _decimal(precision: int, scale: int) -> Converter:
    unit = decimal.Decimal(1).scaleb(-scale)
    context = decimal.Context(prec=precision + scale + 1, rounding=decimal.ROUND_HALF_UP)

    def convert(value: Any) -> decimal.Decimal | None:
        number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(_text(value).strip())
        if not number.is_finite():
            raise _misfit(value, "DECIMAL")
        if number and number.adjusted() >= precision - scale:
            return None
        rounded = number.quantize(unit, context=context)
        # Flink: a number with more digits than the type has is NULL, not an error.
        return None if rounded and rounded.adjusted() >= precision - scale else rounded

    return convert


def _timestamp(*, to_milliseconds: bool) -> Converter:
    def convert(value: Any) -> datetime.datetime:
        if not isinstance(value, str):
            raise _misfit(value, "timestamp")
        try:
            moment = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            raise _misfit(value, "timestamp") from None
        moment = moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment.astimezone(datetime.UTC)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000) if to_milliseconds else moment

    return convert


def _date(value: Any) -> datetime.date:
    if not isinstance(value, str):
        raise _misfit(value, "DATE")
    try:
        return datetime.date.fromisoformat(value.strip())
    except ValueError:
        raise _misfit(value, "DATE") from None


def _time(value: Any) -> int:
    """Milliseconds of the day."""
    if not isinstance(value, str):
        raise _misfit(value, "TIME")
    try:
        clock = datetime.time.fromisoformat(value.strip())
    except ValueError:
        raise _misfit(value, "TIME") from None
    return ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 1000 + clock.microsecond // 1000


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _misfit(value, "BYTES")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise _misfit(value, "base64 text") from None


def _array(element: Converter) -> Converter:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _misfit(value, "ARRAY")
        return [None if item is None else element(item) for item in value]

    return convert


def _map(key: Converter, element: Converter) -> Converter:
    """The members of an object, whose names are texts and so are read as texts for the key's type are."""

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise _misfit(value, "MAP")
        found = {}
        for name, item in value.items():
            of_type = key(name)
            if of_type is None:
                raise _misfit(name, "key of the MAP's type")
            # Names that differ, as 1 and 01, may be one key: the last one counts, as of equal names.
            found[of_type] = None if item is None else element(item)
        return list(found.items())

    return convert


def _row(fields: dict[str, Converter]) -> Converter:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(value, "ROW")
        row = {}
        for name, field in fields.items():
            item = value.get(name)
            row[name] = None if item is None else field(item)
        return row

    return convert


_PLAIN: dict[TypeKind, Converter] = {
    TypeKind.NULL: lambda _value: None,
    TypeKind.BOOLEAN: _boolean,
    TypeKind.FLOAT: _float,
    TypeKind.DOUBLE: _float,
    TypeKind.STRING: _text,
    TypeKind.BYTES: _bytes,
    TypeKind.DATE: _date,
    TypeKind.TIME: _time,
}
