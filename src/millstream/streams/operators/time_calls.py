"""Functions of times and intervals as plain functions of the numbers that rows hold.

A TIMESTAMP is microseconds since 1970, a DATE days, a TIME milliseconds of the day, an interval microseconds or months.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from millstream.streams.functions.calendar import (
    DAY_US,
    add_units,
    ceil_to_unit,
    field_of,
    floor_to_unit,
    part_of,
    units_between,
)
from millstream.streams.plan.expressions import Call, Literal
from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["TIME_CALLS", "build_scaling", "interval_text", "is_interval", "sum_of"]

_MS_US = 1000
_DAY_MS = DAY_US // _MS_US
_INTERVALS = (TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR)
_INT_RANGE = 2**32


def _microseconds(of: DataType) -> int:
    """How many microseconds a value of 1 stands for."""
    return {TypeKind.DATE: DAY_US, TypeKind.TIME: _MS_US}.get(of.kind, 1)


def _result(us: int | None, of: DataType) -> int | None:
    """A time as a value of the type."""
    if us is None or of.is_timestamp:
        return us
    return us // DAY_US if of.kind is TypeKind.DATE else us // _MS_US % _DAY_MS


def _unit(call: Call, place: int) -> str:
    argument = call.arguments[place]
    return str(argument.value if isinstance(argument, Literal) else None).upper().removeprefix("SQL_TSI_")


def _field(name: str) -> Callable[[Call], Callable[..., Any]]:
    def build(call: Call) -> Callable[..., Any]:
        scale = _microseconds(call.arguments[0].type)
        return lambda time: field_of(time * scale, name)

    return build


def _extract(call: Call) -> Callable[..., Any]:
    unit, of = _unit(call, 0), call.arguments[1].type
    if is_interval(of):
        return lambda _unit, length: part_of(length, unit)
    scale = _microseconds(of)
    return lambda _unit, time: field_of(time * scale, unit)


def _build_rounding(round_to: Callable[[int, str], int | None]) -> Callable[[Call], Callable[..., Any]]:
    def build(call: Call) -> Callable[..., Any]:
        unit, of = _unit(call, 1), call.arguments[0].type
        scale = _microseconds(of)
        return lambda time, _unit: _result(round_to(time * scale, unit), of)

    return build


def _timestamp_add(call: Call) -> Callable[..., Any]:
    unit, scale = _unit(call, 0), _microseconds(call.arguments[2].type)
    return lambda _unit, count, time: _result(add_units(time * scale, unit, count), call.type)


def _timestamp_diff(call: Call) -> Callable[..., Any]:
    unit = _unit(call, 0)
    start_scale, end_scale = (_microseconds(argument.type) for argument in call.arguments[1:])
    is_int = call.type.kind is TypeKind.INT

    def difference(_unit: str, start: int, end: int) -> int | None:
        count = units_between(start * start_scale, end * end_scale, unit)
        # As an INT of Java, which goes round.
        return (count + _INT_RANGE // 2) % _INT_RANGE - _INT_RANGE // 2 if is_int and count is not None else count

    return difference


def _between(call: Call) -> Callable[..., Any]:
    end_scale, start_scale = (_microseconds(argument.type) for argument in call.arguments[:2])
    if call.type.kind is TypeKind.INTERVAL_YEAR:
        return lambda end, start, _unit: units_between(start * start_scale, end * end_scale, "MONTH")
    return lambda end, start, _unit: end * end_scale - start * start_scale


def is_interval(of: DataType) -> bool:
    """Whether values of the type are lengths of time."""
    return of.kind in _INTERVALS


def build_scaling(call: Call) -> Callable[[Any, Any], int | None]:
    """What * or / computes of an interval and a number: whole microseconds or months, halves away from 0."""
    divides = call.function == "/"

    def scale(one: Any, other: Any) -> int | None:
        if divides and other == 0:
            return None
        left, right = (Decimal(str(value)) for value in (one, other))
        return int((left / right if divides else left * right).quantize(Decimal(1), ROUND_HALF_UP))

    return scale


def interval_text(of: DataType) -> Callable[[int], str]:
    """How CAST writes an interval of the type: `+1 02:03:04.500` and `+1-02`."""
    if of.kind is TypeKind.INTERVAL_YEAR:
        return lambda months: f"{'-' if months < 0 else '+'}{abs(months) // 12}-{abs(months) % 12:02}"

    def write(us: int) -> str:
        days, rest = divmod(abs(us), DAY_US)
        seconds, fraction = divmod(rest, 1_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction // 1000:03}"
        return f"{'-' if us < 0 else '+'}{days} {clock}"

    return write


def sum_of(call: Call, sign: int) -> Callable[[Any, Any], Any]:
    """What + (sign 1) or - (sign -1) computes: of numbers and of intervals, and of a time and an interval."""
    of, by = (argument.type for argument in call.arguments)
    if by.kind not in _INTERVALS or of.kind in _INTERVALS:
        return operator.add if sign > 0 else operator.sub
    if by.kind is TypeKind.INTERVAL_YEAR:
        scale = _microseconds(of)
        return lambda time, months: _result(add_units(time * scale, "MONTH", sign * months), of)
    if of.kind is TypeKind.DATE and call.type.kind is TypeKind.DATE:
        return lambda date, us: date + sign * (us // DAY_US if us >= 0 else -(-us // DAY_US))
    scale = _microseconds(of)
    return lambda time, us: _result(time * scale + sign * us, call.type)


TIME_CALLS: dict[str, Callable[[Call], Callable[..., Any]]] = {
    "EXTRACT": _extract,
    "MINUS DATE": _between,
    "TIMESTAMPADD": _timestamp_add,
    "TIMESTAMPDIFF": _timestamp_diff,
    "FLOOR": _build_rounding(floor_to_unit),
    "CEIL": _build_rounding(ceil_to_unit),
    "DAYOFMONTH": _field("DAY"),
    "DAYOFWEEK": _field("DOW"),
    "DAYOFYEAR": _field("DOY"),
    **{name: _field(name) for name in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")},
}
"""From the call to what computes its value. FLOOR and CEIL are those of a time and a unit."""
