"""Converts values between SQL and users' Python, and checks results against declared types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["MAX_SHOWN_VALUE", "Row", "WrongResult", "plain_value", "python_value", "to_arrow_value"]


class Row(dict[str, Any]):
    """One row: `row["host"]` and `row.host` are its columns; a column that is called like a method has the first form.

    >>> row = Row(host="a", items=3)
    >>> row.host, row["items"]
    ('a', 3)
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"The row has no column {name!r}; it has {known}.") from None


MAX_SHOWN_VALUE: Final = 200
"""Characters of a value of a wrong type that an error shows at most."""

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DATE = datetime.date(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64}

Conversion = Callable[[Any], Any]


class WrongResult(TypeError):
    """A value that is not of the type that the function declares."""

    def __init__(self, wanted: DataType, value: object) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= MAX_SHOWN_VALUE else f"{shown[:MAX_SHOWN_VALUE]} ..."
        super().__init__(f"{wanted} expected, got {type(value).__name__} {shown}")


def python_value(data_type: DataType) -> Conversion | None:
    """What makes Python's own value of a plain one that is not NULL; None where it is that already."""
    match data_type.kind:
        case TypeKind.TIMESTAMP:
            return lambda value: _EPOCH + datetime.timedelta(microseconds=value)
        case TypeKind.TIMESTAMP_LTZ:
            return lambda value: (_EPOCH + datetime.timedelta(microseconds=value)).replace(tzinfo=datetime.UTC)
        case TypeKind.DATE:
            return lambda value: _EPOCH_DATE + datetime.timedelta(days=value)
        case TypeKind.ARRAY:
            inner = python_value(data_type.elements[0])
            return None if inner is None else lambda value: [_or_none(inner, one) for one in value]
        case TypeKind.MAP:
            key, value_of = (python_value(one) for one in data_type.elements)
            return lambda value: {_or_none(key, name): _or_none(value_of, one) for name, one in dict(value).items()}
        case TypeKind.ROW:
            parts = {field.name: python_value(field.type) for field in data_type.fields}
            return lambda value: {name: _or_none(parts[name], one) for name, one in value.items()}
        case _:
            return None


def to_arrow_value(value: Any, data_type: DataType) -> Any:
    """The value of a user's function in the form that Arrow takes. Raises WrongResult if it is of another type."""
    if value is None:
        return None
    kind = data_type.kind
    if kind in (TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW):
        return _to_nested_value(value, data_type)
    if not _fits(value, data_type):
        raise WrongResult(data_type, value)
    if kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
        return float(value)
    if kind is TypeKind.TIMESTAMP_LTZ or (kind is TypeKind.TIMESTAMP and isinstance(value, datetime.datetime)):
        return value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
    if data_type.is_integer:
        return int(value)
    if kind is TypeKind.DECIMAL:
        return _decimal(value, data_type)
    return value


def plain_value(value: Any, data_type: DataType) -> Any:
    """The value of a user's function as operators have it. Raises WrongResult if it is of another type."""
    return _plain(to_arrow_value(value, data_type), data_type)


def _plain(value: Any, data_type: DataType) -> Any:
    if value is None:
        return None
    match data_type.kind:
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            return (value.astimezone(datetime.UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND
        case TypeKind.DATE:
            return (value - _EPOCH_DATE).days
        case TypeKind.ARRAY:
            return [_plain(one, data_type.elements[0]) for one in value]
        case TypeKind.MAP:
            key, inner = data_type.elements
            return [(_plain(name, key), _plain(one, inner)) for name, one in value]
        case TypeKind.ROW:
            return {field.name: _plain(value[field.name], field.type) for field in data_type.fields}
        case _:
            return value


def _or_none(convert: Conversion | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _fits(value: Any, data_type: DataType) -> bool:
    is_bool = isinstance(value, bool) or type(value).__name__ == "bool_"
    match data_type.kind:
        case TypeKind.BOOLEAN:
            return is_bool
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            return not is_bool and hasattr(value, "__float__") and not isinstance(value, decimal.Decimal)
        case TypeKind.DECIMAL:
            return isinstance(value, decimal.Decimal | int) and not is_bool
        case TypeKind.STRING:
            return isinstance(value, str)
        case TypeKind.BYTES:
            return isinstance(value, bytes | bytearray)
        case TypeKind.DATE:
            return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            return isinstance(value, datetime.datetime)
        case TypeKind.INTERVAL_DAY:
            return isinstance(value, datetime.timedelta)
    bits = _BITS.get(data_type.kind)
    return bits is None or (not is_bool and hasattr(value, "__index__") and -(1 << bits - 1) <= value < 1 << bits - 1)


def _decimal(value: Any, data_type: DataType) -> decimal.Decimal:
    """The value with the digits of the type behind its point. Raises WrongResult where it has too many before it."""
    precision, scale = data_type.precision or 10, data_type.scale or 0
    context = decimal.Context(prec=max(precision, 1), rounding=decimal.ROUND_HALF_UP)
    try:
        return decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-scale), context=context)
    except decimal.InvalidOperation:
        raise WrongResult(data_type, value) from None


def _to_nested_value(value: Any, data_type: DataType) -> Any:
    if data_type.kind is TypeKind.MAP:
        if not isinstance(value, Mapping):
            raise WrongResult(data_type, value)
        key, inner = data_type.elements
        return [(to_arrow_value(name, key), to_arrow_value(one, inner)) for name, one in value.items()]
    if data_type.kind is TypeKind.ARRAY:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise WrongResult(data_type, value)
        return [to_arrow_value(one, data_type.elements[0]) for one in value]
    parts = _parts(value, data_type)
    if len(parts) != len(data_type.fields):
        raise WrongResult(data_type, value)
    return {field.name: to_arrow_value(part, field.type) for field, part in zip(data_type.fields, parts, strict=True)}


def _parts(value: Any, data_type: DataType) -> Sequence[Any]:
    """The fields of a ROW: of a dataclass, a tuple, a dict by name; any other value is the only one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return [value.get(field.name) for field in data_type.fields]
    return value if isinstance(value, tuple | list) else (value,)
