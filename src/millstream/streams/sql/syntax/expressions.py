"""The syntax tree of expressions, with source positions, before names and types are resolved."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass

from millstream.streams.plan.types import DataType
from millstream.streams.sql.syntax.script import Span

__all__ = [
    "BetweenTerm",
    "CallTerm",
    "CaseTerm",
    "CastTerm",
    "ExistsTerm",
    "FrameBound",
    "InQueryTerm",
    "InTerm",
    "IntervalTerm",
    "IsTerm",
    "LiteralTerm",
    "NameTerm",
    "Operation",
    "OverWindow",
    "QuantifiedTerm",
    "QuerySyntax",
    "QueryTerm",
    "QuestionTerm",
    "RowTerm",
    "SortItem",
    "StarTerm",
    "Term",
]


@dataclass(frozen=True, slots=True)
class NameTerm:
    """A column, perhaps behind a table's name, perhaps with fields of a ROW behind it."""

    parts: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class LiteralTerm:
    """A constant; `digits` are those of the second's fraction that a TIMESTAMP was written with."""

    value: bool | int | str | bytes | decimal.Decimal | float | datetime.date | datetime.datetime | None
    span: Span
    digits: int = 0


@dataclass(frozen=True, slots=True)
class IntervalTerm:
    """INTERVAL of days to seconds; `months` for years and months."""

    duration: datetime.timedelta | None
    months: int
    span: Span


@dataclass(frozen=True, slots=True)
class StarTerm:
    """All columns, or those of the table that `qualifier` names."""

    span: Span
    qualifier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """A unary or binary operator, by the plan's name of it."""

    operator: str
    operands: tuple[Term, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class SortItem:
    """One item of an ORDER BY; `nulls_first` None says nothing."""

    value: Term
    ascending: bool
    nulls_first: bool | None
    span: Span


@dataclass(frozen=True, slots=True)
class FrameBound:
    """UNBOUNDED (no `amount`), or an amount of rows or time, PRECEDING or FOLLOWING; CURRENT ROW where `current`."""

    amount: Term | None
    following: bool
    current: bool
    span: Span


@dataclass(frozen=True, slots=True)
class OverWindow:
    """OVER (...), OVER w (then `base` is its name) and the definitions of a WINDOW clause."""

    base: str | None
    partition: tuple[Term, ...]
    order: tuple[SortItem, ...]
    rows: bool
    frame: tuple[FrameBound, FrameBound] | None
    span: Span


@dataclass(frozen=True, slots=True)
class CallTerm:
    name: str
    arguments: tuple[Term, ...]
    span: Span
    name_span: Span
    star: bool = False
    distinct: bool = False
    filter: Term | None = None
    order: tuple[SortItem, ...] = ()
    over: OverWindow | None = None


@dataclass(frozen=True, slots=True)
class CaseTerm:
    operand: Term | None
    branches: tuple[tuple[Term, Term], ...]
    otherwise: Term | None
    span: Span


@dataclass(frozen=True, slots=True)
class CastTerm:
    operand: Term
    type: DataType
    safe: bool
    span: Span


@dataclass(frozen=True, slots=True)
class InTerm:
    operand: Term
    options: tuple[Term, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class RowTerm:
    """(a, b) or ROW(a, b)."""

    values: tuple[Term, ...]
    span: Span


class QuerySyntax:
    """A query, as terms hold it; `query_tree` of `query_syntax` knows its kinds."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A sub-query as a value: one row of one column."""

    query: QuerySyntax
    span: Span


@dataclass(frozen=True, slots=True)
class ExistsTerm:
    query: QuerySyntax
    span: Span


@dataclass(frozen=True, slots=True)
class InQueryTerm:
    operand: Term
    query: QuerySyntax
    span: Span


@dataclass(frozen=True, slots=True)
class QuantifiedTerm:
    """A comparison with ANY or ALL rows of a sub-query, other than those that are IN and NOT IN."""

    operand: Term
    operator: str
    of_all: bool
    query: QuerySyntax
    span: Span


@dataclass(frozen=True, slots=True)
class BetweenTerm:
    operand: Term
    low: Term
    high: Term
    span: Span


@dataclass(frozen=True, slots=True)
class IsTerm:
    """IS [NOT] TRUE, FALSE; IS [NOT] NULL is an `Operation`."""

    operand: Term
    value: bool
    span: Span


Term = (
    NameTerm
    | LiteralTerm
    | IntervalTerm
    | StarTerm
    | Operation
    | CallTerm
    | CaseTerm
    | CastTerm
    | InTerm
    | BetweenTerm
    | IsTerm
    | RowTerm
    | QueryTerm
    | ExistsTerm
    | InQueryTerm
    | QuantifiedTerm
)

QuestionTerm = ExistsTerm | InQueryTerm | QuantifiedTerm
"""What the rows of a sub-query answer with TRUE, FALSE or UNKNOWN."""
