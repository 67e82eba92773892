"""Expressions of the plan as Python functions of a row, for conditions that an operator has to know itself.

NULL is None and conditions have three values, as in SQL. `EVALUATED` is what can be evaluated; everything else stays
a Spark column outside of operators.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cache, partial
from typing import Any

from millstream.streams.errors import JobError
from millstream.streams.functions.casting import at_length
from millstream.streams.functions.float32 import single
from millstream.streams.functions.rowwise import NULLABLE, ROWWISE
from millstream.streams.operators.aggregates.accumulator import CONTEXT
from millstream.streams.operators.changes import Row
from millstream.streams.operators.time_calls import TIME_CALLS, build_scaling, interval_text, is_interval, sum_of
from millstream.streams.plan.evaluation import junction, membership, plain_literal
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.types import MAX_DIGITS, DataType, TypeKind

__all__ = ["EVALUATED", "Evaluator", "evaluator"]

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
