"""Operands of SQL conditions: a column as text or number, direct or after simple functions."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from millstream.streams.functions.float32 import single
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.rules.conditions import Condition, Op, Operand, Predicate, TextStep, Truth, all_of, negate
from millstream.streams.rules.reference import FIELD_SEPARATOR, answer

__all__ = [
    "InexpressibleCondition",
    "NumberOperand",
    "TextOperand",
    "constant_text",
    "field_of",
    "number_operand",
    "text_operand",
]

_OPS = {"<": Op.LESS, "<=": Op.LESS_EQUAL, ">": Op.GREATER, ">=": Op.GREATER_EQUAL}
_STEPS = {"LOWER": TextStep.LOWER, "UPPER": TextStep.UPPER, "TRIM": TextStep.TRIM, "BTRIM": TextStep.TRIM}
_DEFAULTS = ("COALESCE", "IFNULL", "NVL")
_LARGEST_SURE = 2**53
"""Whole numbers below it have a DOUBLE of their own."""

_LONG = 2**63

Number = int | float | decimal.Decimal


class InexpressibleCondition(ValueError):
    """Why a condition cannot be said by atoms, in a few words."""


@dataclass(frozen=True, slots=True)
class TextOperand:
    """A STRING column, with `default` for NULL, after the steps."""

    field: str
    default: str | None = None
    steps: tuple[TextStep, ...] = ()

    def test(self, op: Op, *operands: Operand) -> Condition:
        """The question about it."""
        return _with_default(Predicate(self.field, op, operands, steps=self.steps), self.default)

    def compare(self, operator: str, constant: str) -> Condition:
        """It and a constant; texts are ordered by the numbers of their characters."""
        return self.test(Op.IN if operator == "=" else _OPS[operator], constant)

    def one_of(self, constants: Sequence[str]) -> Condition:
        """Whether it is one of them."""
        return self.test(Op.IN, *sorted(set(constants)))

    def is_null(self) -> Condition:
        """Whether there is none."""
        return Predicate(self.field, Op.IS_NULL) if self.default is None else Truth(False)

    def match_pattern(self, pattern: str) -> Condition:
        """Whether a regular expression of Python is found in it."""
        return self.test(Op.MATCHES, pattern)

    def never(self) -> Condition:
        """False, unknown where there is none."""
        return all_of(self.is_null(), Truth(None))


@dataclass(frozen=True, slots=True)
class NumberOperand:
    """A column of numbers, with `default` for NULL."""

    field: str
    type: DataType
    default: int | float | None = None

    def compare(self, operator: str, constant: Literal) -> Condition:
        """It and a constant, as Spark compares the two; NaN is greater than all numbers there."""
        if self.type.is_integer:
            return self._whole(operator, constant)
        number = self._floating(constant)
        if operator in (">", ">="):
            return negate(self._test(Op.LESS_EQUAL if operator == ">" else Op.LESS, number))
        return self._test(Op.IN if operator == "=" else _OPS[operator], number)

    def one_of(self, constants: Sequence[Literal]) -> Condition:
        """Whether it is one of them."""
        if self.type.is_integer:
            numbers = [self._number(constant) for constant in constants]
            whole: list[int] = sorted({int(number) for number in numbers if number == int(number)})
            return self._test(Op.IN, *whole) if whole else self._never()
        floating = sorted({self._floating(constant) for constant in constants})
        if 0 in floating:
            raise InexpressibleCondition("whether 0 and -0 are one depends on the length of the list")
        return self._test(Op.IN, *floating)

    def _whole(self, operator: str, constant: Literal) -> Condition:
        number = self._number(constant)
        below = math.floor(number)
        if below == number:
            return self._test(Op.IN if operator == "=" else _OPS[operator], below)
        if operator == "=":
            return self._never()
        return self._test(Op.LESS_EQUAL if operator in ("<", "<=") else Op.GREATER, below)

    def _number(self, constant: Literal) -> Number:
        """The constant that whole numbers are compared with."""
        value = _number_of(constant)
        if not math.isfinite(value):
            raise InexpressibleCondition("the constant is no finite number")
        # A DOUBLE makes both sides DOUBLE, and FLOAT both FLOAT.
        bound = _LONG if isinstance(value, (int, decimal.Decimal)) else _LARGEST_SURE
        if not -bound < value < bound or constant.type.kind is TypeKind.FLOAT:
            raise InexpressibleCondition("the constant is too large to be compared digit by digit")
        return value

    def _floating(self, constant: Literal) -> float:
        value = _number_of(constant)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise InexpressibleCondition("the constant is no finite number")
        if self.type.kind is TypeKind.FLOAT and (value != number or _as_float(number) != number):
            raise InexpressibleCondition("the constant is no FLOAT")
        return number

    def _test(self, op: Op, *operands: Operand) -> Condition:
        return _with_default(Predicate(self.field, op, operands), self.default)

    def _never(self) -> Condition:
        missing = Truth(False) if self.default is not None else Predicate(self.field, Op.IS_NULL)
        return all_of(missing, Truth(None))


def field_of(expression: Expression) -> str | None:
    """The name of the column, or of the field of a ROW column, that the expression is; None for all others."""
    match expression:
        case Column(name=name):
            return None if FIELD_SEPARATOR in name else name
        case Call(function="FIELD", arguments=(row, Literal(value=str(field)))) if FIELD_SEPARATOR not in field:
            below = field_of(row)
            return None if below is None else f"{below}{FIELD_SEPARATOR}{field}"
        case _:
            return None


def text_operand(expression: Expression) -> TextOperand:
    """The operand that the expression is. Raises CannotBeSaid."""
    name = field_of(expression)
    if name is not None and expression.type.kind is TypeKind.STRING:
        return TextOperand(name)
    match expression:
        case Call(function=function, arguments=(inner, *others)) if function in _STEPS and _cuts_blanks(others):
            operand = text_operand(inner)
            return replace(operand, steps=(*operand.steps, _STEPS[function]))
        case Call(function=function, arguments=(column, Literal(value=str(default)))) if (
            function in _DEFAULTS and field_of(column) is not None
        ):
            return replace(text_operand(column), default=default)
    raise InexpressibleCondition("it is no text of one column")


def number_operand(expression: Expression) -> NumberOperand:
    """The operand that the expression is. Raises CannotBeSaid."""
    name, kind = field_of(expression), expression.type
    if name is not None and (kind.is_integer or kind.kind in (TypeKind.FLOAT, TypeKind.DOUBLE)):
        return NumberOperand(name, kind)
    match expression:
        case Call(function=function, arguments=(column, Literal(value=int(default)))) if (
            function in _DEFAULTS
            and field_of(column) is not None
            and kind.as_nullable() == column.type.as_nullable()
            and not isinstance(default, bool)
        ):
            return replace(number_operand(column), default=default)
    raise InexpressibleCondition("it is no whole or floating number of one column")


def constant_text(expression: Expression) -> str:
    """The text that a constant is. Raises CannotBeSaid."""
    if isinstance(expression, Literal) and isinstance(expression.value, str):
        return expression.value
    raise InexpressibleCondition("a text in it is no constant")


def _number_of(constant: Literal) -> Number:
    value = constant.value
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
        raise InexpressibleCondition("the constant is no number")
    return value


def _cuts_blanks(others: Sequence[Expression]) -> bool:
    """Whether TRIM has no further arguments, or those that it has without them."""
    given = [other.value if isinstance(other, Literal) else None for other in others]
    return given in ([], [" "], [" ", "BOTH"])


def _with_default(predicate: Predicate, default: Operand | None) -> Predicate:
    if default is None:
        return predicate
    return msgspec.structs.replace(predicate, absent=answer(predicate, lambda _field: default))


def _as_float(number: float) -> float | None:
    found = single(number)
    return found if math.isfinite(found) or not math.isfinite(number) else None
