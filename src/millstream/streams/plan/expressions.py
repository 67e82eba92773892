"""Scalar expressions of the plan: bound, typed and frozen.

A `Call` names a function of the registry (`millstream.streams.functions`); operators are calls too: `=`, `<>`, `<`,
`<=`, `>`, `>=`, `+`, `-`, `*`, `/`, `%`, `AND`, `OR`, `NOT`, `IS NULL`, `IS NOT NULL`, `LIKE`, `IN`, `BETWEEN`,
`||`, `NEGATE`. Semantics are Flink's; a translator that differs has to bridge the difference.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from dataclasses import dataclass

from millstream.streams.plan.types import DataType

__all__ = [
    "USER_PREFIX",
    "Call",
    "Case",
    "Cast",
    "Column",
    "Expression",
    "Literal",
    "LiteralValue",
    "columns_of",
    "is_proctime",
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
