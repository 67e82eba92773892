"""Scalar expressions of the plan: bound, typed and frozen; split by AND, and rebased on other columns."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.streams.plan.types import BOOLEAN, DataType

__all__ = [
    "BRANCHES",
    "IS_WANTED",
    "USER_PREFIX",
    "WANTED",
    "Call",
    "Case",
    "Cast",
    "Column",
    "Expression",
    "Literal",
    "LiteralValue",
    "columns_of",
    "conjunction",
    "conjuncts_of",
    "is_proctime",
    "operands_of_and",
    "substitute",
]


LiteralValue = (
    None | bool | int | float | str | bytes | decimal.Decimal | datetime.date | datetime.datetime | datetime.timedelta
)


USER_PREFIX = "python:"
"""Begins the name of a call of a user's function; the path of the callable follows."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the node's input, by name."""

    name: str
    type: DataType

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; an INTERVAL of days to seconds is a timedelta."""

    value: LiteralValue
    type: DataType

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        if isinstance(self.value, bytes):
            return f"X'{self.value.hex().upper()}'"
        return "NULL" if self.value is None else str(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator of the registry applied to arguments; `function` is the registry's (upper-case) name."""

    function: str
    arguments: tuple[Expression, ...]
    type: DataType

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN condition THEN result ... ELSE otherwise END; the simple form is bound to this one."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    type: DataType

    def __str__(self) -> str:
        branches = " ".join(f"WHEN {condition} THEN {result}" for condition, result in self.branches)
        return f"CASE {branches}{f' ELSE {self.otherwise}' if self.otherwise else ''} END"


@dataclass(frozen=True, slots=True)
class Cast:
    """CAST, or TRY_CAST where `safe`: NULL in place of an error."""

    operand: Expression
    type: DataType
    safe: bool = False

    def __str__(self) -> str:
        return f"{'TRY_CAST' if self.safe else 'CAST'}({self.operand} AS {self.type})"


Expression = Column | Literal | Call | Case | Cast


def columns_of(expression: Expression) -> Iterator[str]:
    """The names of all columns that the expression reads, repeated as often as they stand there."""
    match expression:
        case Column(name=name):
            yield name
        case Call(arguments=arguments):
            for argument in arguments:
                yield from columns_of(argument)
        case Case(branches=branches, otherwise=otherwise):
            for condition, result in branches:
                yield from columns_of(condition)
                yield from columns_of(result)
            if otherwise is not None:
                yield from columns_of(otherwise)
        case Cast(operand=operand):
            yield from columns_of(operand)
        case Literal():
            return


def is_proctime(expression: Expression) -> bool:
    """Whether the expression is PROCTIME(): a column of it is a processing-time attribute."""
    return isinstance(expression, Call) and expression.function == "PROCTIME"


def operands_of_and(condition: Expression) -> list[Expression]:
    """The parts that AND joins, from left to right; the condition itself where it is no AND."""
    if isinstance(condition, Call) and condition.function == "AND":
        return [part for argument in condition.arguments for part in operands_of_and(argument)]
    return [condition]


def conjuncts_of(condition: Expression | None) -> list[Expression]:
    """The same without those that always hold; none for no condition."""
    always = Literal(True, BOOLEAN.as_nullable(False))
    return [] if condition is None else [part for part in operands_of_and(condition) if part != always]


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """All conditions as one, in halves so that many make a shallow tree; None for none."""
    if not conditions:
        return None
    if len(conditions) == 1:
        return conditions[0]
    middle = (len(conditions) + 1) // 2
    halves = conjunction(conditions[:middle]), conjunction(conditions[middle:])
    return Call("AND", tuple(half for half in halves if half is not None), BOOLEAN)


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """The expression with the values in the place of the columns of those names; others stay."""
    match expression:
        case Column(name=name):
            return values.get(name, expression)
        case Literal():
            return expression
        case Call(arguments=arguments):
            return replace(expression, arguments=tuple(substitute(one, values) for one in arguments))
        case Case(branches=branches, otherwise=otherwise):
            return replace(
                expression,
                branches=tuple((substitute(one, values), substitute(other, values)) for one, other in branches),
                otherwise=None if otherwise is None else substitute(otherwise, values),
            )
        case Cast(operand=operand):
            return replace(expression, operand=substitute(operand, values))


BRANCHES: Final = "BRANCHES"
"""The numbers of its arguments, conditions, that hold: ARRAY<INT>, from 0."""

WANTED: Final = "WANTED"
"""The same where the source has judged the conditions: those from the number `first` to before `end`, from 0."""

IS_WANTED: Final = "IS_WANTED"
"""Whether the condition of that number holds, which the source has judged."""
