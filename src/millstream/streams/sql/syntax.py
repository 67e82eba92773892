"""The syntax tree of queries and expressions: what was written, with its places, before names and types are known."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass

from millstream.streams.plan.types import DataType
from millstream.streams.sql.script import Span

__all__ = [
    "BetweenTerm",
    "CallTerm",
    "CaseTerm",
    "CastTerm",
    "InTerm",
    "IntervalTerm",
    "IsTerm",
    "LiteralTerm",
    "NameTerm",
    "Operation",
    "Select",
    "SelectItem",
    "Source",
    "StarTerm",
    "SubquerySource",
    "TableSource",
    "Term",
    "TumbleSource",
]


@dataclass(frozen=True, slots=True)
class NameTerm:
    """A column, perhaps behind a table's name, perhaps with fields of a ROW behind it."""

    parts: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class LiteralTerm:
    value: bool | int | str | decimal.Decimal | float | datetime.date | datetime.datetime | None
    span: Span


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
class CallTerm:
    name: str
    arguments: tuple[Term, ...]
    span: Span
    name_span: Span
    star: bool = False
    distinct: bool = False
    filter: Term | None = None


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
)


@dataclass(frozen=True, slots=True)
class TableSource:
    name: str
    span: Span
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class SubquerySource:
    query: Select
    span: Span
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class TumbleSource:
    """TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL size [, INTERVAL offset]))."""

    table: TableSource
    time_column: NameTerm
    size: IntervalTerm
    offset: IntervalTerm | None
    span: Span
    alias: str | None = None


Source = TableSource | SubquerySource | TumbleSource


@dataclass(frozen=True, slots=True)
class SelectItem:
    value: Term
    alias: str | None


@dataclass(frozen=True, slots=True)
class Select:
    items: tuple[SelectItem, ...]
    source: Source | None
    where: Term | None
    groups: tuple[Term, ...]
    having: Term | None
    span: Span
