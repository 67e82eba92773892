"""Binds arithmetic: numbers with Flink's result types, times and intervals."""

from __future__ import annotations

import datetime
from decimal import Decimal

from millstream.streams.errors import SqlError
from millstream.streams.functions.calendar import DAY_US
from millstream.streams.functions.casting import common_type
from millstream.streams.plan.expressions import Call, Expression, Literal
from millstream.streams.plan.types import BIGINT, INT, MAX_DIGITS, DataType, TypeKind
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["arithmetic", "negate"]

_INT_LIMIT = 2**31
_BIGINT_LIMIT = 2**63
_INTERVALS = (TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR)


def negate(operand: Expression, span: Span, script: Script) -> Expression:
    """What stands behind a minus. Raises SqlError SQL_TYPE unless it is a number or an interval."""
    numeric = operand.type.is_number or operand.type.kind in _INTERVALS
    if isinstance(operand, Literal) and numeric and not isinstance(operand.value, None | str | bytes | datetime.date):
        return _smallest(operand.value) or Literal(-operand.value, operand.type)
    if not numeric:
        raise script.error("SQL_TYPE", f"A number is needed behind -, but this is {operand.type}.", span)
    return Call("NEGATE", (operand,), operand.type)


def _smallest(number: object) -> Literal | None:
    """The smallest INT or BIGINT, whose digits alone are a number of a larger type."""
    if type(number) is int and number == _INT_LIMIT:
        return Literal(-number, INT.as_nullable(False))
    if isinstance(number, Decimal) and number == _BIGINT_LIMIT and number.as_tuple().exponent == 0:
        return Literal(-_BIGINT_LIMIT, BIGINT.as_nullable(False))
    return None


def arithmetic(operator: str, left: Expression, right: Expression, span: Span, script: Script) -> Expression:
    """`left` operator `right`, one of + - * / %. Raises SqlError SQL_TYPE where that has no meaning."""
    of_times = _of_times(operator, left, right)
    if of_times is not None:
        return of_times
    for side in (left, right):
        if not side.type.is_number and side.type.kind is not TypeKind.NULL:
            raise _impossible(operator, left, right, span, script)
    function = "MOD" if operator == "%" else operator
    return Call(function, (left, right), _result_of(operator, left.type, right.type))


def _of_times(operator: str, left: Expression, right: Expression) -> Expression | None:
    """Times and intervals in the forms that SQL has; None for all else."""
    intervals = [side.type.kind in _INTERVALS for side in (left, right)]
    times = [side.type.is_timestamp or side.type.kind in (TypeKind.DATE, TypeKind.TIME) for side in (left, right)]
    nullable = left.type.nullable or right.type.nullable
    if operator in "*/" and intervals[0] and not intervals[1]:
        return _scale_interval(operator, left, right)
    if operator == "*" and intervals[1] and not intervals[0]:
        return _scale_interval(operator, right, left)
    if operator in "+-" and all(intervals) and left.type.kind is right.type.kind:
        return Call(operator, (left, right), left.type.as_nullable(nullable))
    if operator in "+-" and times[0] and intervals[1]:
        return Call(operator, (left, right), _moved_type(left, right))
    if operator == "+" and intervals[0] and times[1]:
        return Call(operator, (right, left), _moved_type(right, left))
    return None


def _moved_type(time: Expression, interval: Expression) -> DataType:
    """A date that is moved by hours is no date any more."""
    of_clock = (
        isinstance(interval, Literal)
        and isinstance(interval.value, datetime.timedelta)
        and interval.value % datetime.timedelta(microseconds=DAY_US)
    )
    if time.type.kind is TypeKind.DATE and of_clock:
        return DataType(TypeKind.TIMESTAMP, nullable=time.type.nullable, precision=3)
    return time.type


def _impossible(operator: str, left: Expression, right: Expression, span: Span, script: Script) -> SqlError:
    shown = f"{left.type} {operator} {right.type}"
    times = all(side.type.is_timestamp or side.type.kind in (TypeKind.DATE, TypeKind.TIME) for side in (left, right))
    remedy = None
    if times and operator == "-":
        remedy = "Write (a - b) DAY TO SECOND for an interval, or TIMESTAMPDIFF(SECOND, b, a) for a number."
    return script.error("SQL_TYPE", f"{shown} is not possible.", span, remedy=remedy)


def _scale_interval(operator: str, interval: Expression, number: Expression) -> Expression | None:
    """An interval so many times, or a part of it; of whole constants a constant, which windows and watermarks take."""
    if not number.type.is_number:
        return None
    of = interval.type.as_nullable(interval.type.nullable or number.type.nullable or operator == "/")
    match interval, number:
        case Literal(value=datetime.timedelta() | int() as length), Literal(value=int(times)) if operator == "*":
            return Literal(length * times, of)
    return Call(operator, (interval, number), of)


def _result_of(operator: str, left: DataType, right: DataType) -> DataType:
    """Flink's type of an arithmetic result: for DECIMAL the rules of its LogicalTypeMerging."""
    wide = common_type((left, right))
    (left_digits, left_scale), (right_digits, right_scale) = _decimal_shape(left), _decimal_shape(right)
    scale = max(left_scale, right_scale)
    if operator == "%" and right.kind is not TypeKind.NULL and (wide.kind is not TypeKind.DECIMAL or scale == 0):
        return right.as_nullable()
    if wide.kind is not TypeKind.DECIMAL:
        return wide
    if operator == "*":
        precision, scale = left_digits + right_digits + 1, left_scale + right_scale
    elif operator == "/":
        scale = max(6, left_scale + right_digits + 1)
        precision = left_digits - left_scale + right_scale + scale
    elif operator == "%":
        precision = min(left_digits - left_scale, right_digits - right_scale) + scale
    else:
        precision = max(left_digits - left_scale, right_digits - right_scale) + scale + 1
    if precision > MAX_DIGITS:
        scale = max(min(scale, 6), scale - (precision - MAX_DIGITS))
        precision = MAX_DIGITS
    return DataType(TypeKind.DECIMAL, precision=precision, scale=scale)


def _decimal_shape(data_type: DataType) -> tuple[int, int]:
    if data_type.kind is TypeKind.DECIMAL:
        return data_type.precision or 10, data_type.scale or 0
    return {TypeKind.TINYINT: 3, TypeKind.SMALLINT: 5, TypeKind.INT: 10}.get(data_type.kind, 19), 0
