"""Compiles plan expressions to Python functions of a row, for operators that evaluate conditions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import cache, partial
from typing import Any

from millstream.streams.errors import JobError
from millstream.streams.functions.calendar import (
    DAY_US,
    add_units,
    ceil_to_unit,
    field_of,
    floor_to_unit,
    part_of,
    units_between,
)
from millstream.streams.functions.casting import at_length
from millstream.streams.functions.float32 import single
from millstream.streams.functions.rowwise import NULLABLE, ROWWISE
from millstream.streams.operators.aggregates.accumulator import CONTEXT
from millstream.streams.operators.operator import Row
from millstream.streams.plan.evaluation import junction, membership, plain_literal
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.types import MAX_DIGITS, DataType, TypeKind

__all__ = [
    "EVALUATED",
    "TIME_CALLS",
    "Evaluator",
    "build_scaling",
    "evaluator",
    "interval_text",
    "is_interval",
    "sum_of",
]


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


Evaluator = Callable[[Row], Any]


def evaluator(expression: Expression, places: Mapping[str, int]) -> Evaluator:
    """A function from a row to the value of `expression`; `places` tells where its columns stand.

    Raises JobError JOB_FAILED for a function that cannot be evaluated in an operator.
    """
    match expression:
        case Column(name=name):
            return operator.itemgetter(places[name])
        case Literal():
            value = plain_literal(expression)
            return lambda _row: value
        case Call():
            return _call(expression, [evaluator(argument, places) for argument in expression.arguments])
        case Case():
            return _case(expression, places)
        case Cast():
            inner = evaluator(expression.operand, places)
            convert = _conversion(expression.operand.type, expression.type)
            return lambda row: None if (value := inner(row)) is None else convert(value)


def _call(call: Call, arguments: Sequence[Evaluator]) -> Evaluator:
    match call.function:
        case "AND" | "OR":
            return junction(arguments, stops=call.function == "OR")
        case "COALESCE" | "IFNULL":
            return lambda row: next((value for one in arguments if (value := one(row)) is not None), None)
        case "IS NULL":
            return lambda row: arguments[0](row) is None
        case "IS NOT NULL":
            return lambda row: arguments[0](row) is not None
        case "IN":
            return membership(arguments[0], arguments[1:])
        case "LIKE":
            return _like(call, arguments)
    if call.function in NULLABLE:
        compute = NULLABLE[call.function]
        return lambda row: compute(*(one(row) for one in arguments))
    return _strict(call, arguments)


def _strict(call: Call, arguments: Sequence[Evaluator]) -> Evaluator:
    """A function that is NULL where an argument is."""
    build, plain = EVALUATED.get(call.function), ROWWISE.get(call.function)
    if plain is not None and _is_plain(call):
        compute = plain
    elif build is not None:
        compute = _round_to_float32(build(call)) if call.type.kind is TypeKind.FLOAT else build(call)
    else:
        raise JobError("JOB_FAILED", f"The function {call.function} cannot be evaluated inside an operator.")
    if len(arguments) == 1:
        only = arguments[0]
        return lambda row: None if (value := only(row)) is None else compute(value)
    if len(arguments) == 2:
        left, right = arguments

        def both(row: Row) -> Any:
            first = left(row)
            if first is None:
                return None
            second = right(row)
            return None if second is None else compute(first, second)

        return both

    def every(row: Row) -> Any:
        values = [one(row) for one in arguments]
        return None if None in values else compute(*values)

    return every


def _round_to_float32(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The same in numbers of 32 bits."""
    return lambda *values: None if (found := compute(*values)) is None else single(found)


def _is_plain(call: Call) -> bool:
    """Whether ROWWISE has all of it: not the JSON_VALUE that converts, and not the FLOOR and CEIL of times."""
    if call.function == "JSON_VALUE":
        return len(call.arguments) == 2
    return call.function not in ("FLOOR", "CEIL") or len(call.arguments) == 1


def _like(call: Call, arguments: Sequence[Evaluator]) -> Evaluator:
    escape = arguments[2] if len(arguments) > 2 else None

    def matches(row: Row) -> bool | None:
        value, pattern = arguments[0](row), arguments[1](row)
        if value is None or pattern is None:
            return None
        return _like_pattern(pattern, None if escape is None else escape(row)).fullmatch(value) is not None

    return matches


@cache
def _like_pattern(pattern: str, escape: str | None) -> re.Pattern[str]:
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            parts.append(re.escape(next(characters, "")))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def _case(case: Case, places: Mapping[str, int]) -> Evaluator:
    branches = [(evaluator(condition, places), evaluator(result, places)) for condition, result in case.branches]
    otherwise = None if case.otherwise is None else evaluator(case.otherwise, places)

    def choose(row: Row) -> Any:
        for condition, result in branches:
            if condition(row):
                return result(row)
        return None if otherwise is None else otherwise(row)

    return choose


def _divide(call: Call) -> Callable[[Any, Any], Any]:
    if is_interval(call.type):
        return build_scaling(call)
    whole = call.type.is_integer

    def divide(first: Any, second: Any) -> Any:
        if second == 0:
            return None
        if not whole:
            return first / second
        found = abs(first) // abs(second)
        return found if (first < 0) == (second < 0) else -found

    return divide


def _build_concat(call: Call) -> Callable[..., Any]:
    nothing: Any = b"" if call.type.kind is TypeKind.BYTES else ""
    return lambda *parts: nothing.join(parts)


def _remainder(_call: Call) -> Callable[[Any, Any], Any]:
    def remainder(first: Any, second: Any) -> Any:
        if second == 0:
            return None
        found = abs(first) % abs(second)
        return -found if first < 0 else found

    return remainder


def _conversion(given: DataType, wanted: DataType) -> Callable[[Any], Any]:
    convert = _whole_conversion(given, wanted)
    return (lambda value: at_length(convert(value), wanted)) if wanted.is_sized else convert


def _whole_conversion(given: DataType, wanted: DataType) -> Callable[[Any], Any]:
    if given.kind is TypeKind.NULL:
        return lambda _nothing: None
    if wanted.is_integer:
        return _whole
    match wanted.kind:
        case TypeKind.FLOAT:
            return _round_to_float32(_float)
        case TypeKind.DOUBLE:
            return _float
        case TypeKind.DECIMAL:
            return partial(_decimal, Decimal(1).scaleb(-(wanted.scale or 0)), wanted.precision or MAX_DIGITS)
        case TypeKind.STRING if given.kind is TypeKind.STRING or given.is_integer:
            return str
        case TypeKind.STRING if is_interval(given):
            return interval_text(given)
        case TypeKind.STRING if given.kind is TypeKind.BYTES:
            return lambda value: bytes(value).decode("utf-8", "replace")
        case TypeKind.BYTES if given.kind is TypeKind.STRING:
            return str.encode
        case kind if kind is given.kind or (given.is_timestamp and wanted.is_timestamp):
            return lambda value: value
    raise JobError("JOB_FAILED", f"CAST of {given} AS {wanted} cannot be evaluated inside an operator.")


def _decimal(unit: Decimal, precision: int, value: Any) -> Decimal | None:
    """The value with the digits of `unit`; NULL for a text that is no number, and where it has too many digits."""
    try:
        number = Decimal(str(value)).quantize(unit, context=CONTEXT)
    except InvalidOperation:
        return None
    return number if len(number.as_tuple().digits) <= precision else None


def _opposite(value: Any) -> Any:
    # Python's own minus rounds decimals to 28 digits.
    return CONTEXT.minus(value) if isinstance(value, Decimal) else -value


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _plain(compute: Callable[..., Any]) -> Callable[[Call], Callable[..., Any]]:
    return lambda _call: compute


EVALUATED: dict[str, Callable[[Call], Callable[..., Any]]] = {
    "=": _plain(operator.eq),
    "<>": _plain(operator.ne),
    "<": _plain(operator.lt),
    "<=": _plain(operator.le),
    ">": _plain(operator.gt),
    ">=": _plain(operator.ge),
    "+": lambda call: sum_of(call, 1),
    "-": lambda call: sum_of(call, -1),
    "*": lambda call: build_scaling(call) if is_interval(call.type) else operator.mul,
    "/": _divide,
    "%": _remainder,
    "MOD": _remainder,
    "NOT": _plain(operator.not_),
    "NEGATE": _plain(_opposite),
    "||": _plain(operator.add),
    "CONCAT": _build_concat,
    "ABS": _plain(lambda value: value.copy_abs() if isinstance(value, Decimal) else abs(value)),
    "LOWER": _plain(str.lower),
    "UPPER": _plain(str.upper),
    "CHAR_LENGTH": _plain(len),
    "GREATEST": _plain(max),
    "LEAST": _plain(min),
    **TIME_CALLS,
}
"""Functions that are NULL where an argument is, by name: from the call to what computes its value."""
