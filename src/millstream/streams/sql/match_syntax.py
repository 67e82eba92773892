"""The syntax tree of MATCH_RECOGNIZE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.streams.plan.patterns import Pattern, Skip
from millstream.streams.sql.script import Span

if TYPE_CHECKING:
    from millstream.streams.sql.query_syntax import Alias, SubquerySource, TableSource
    from millstream.streams.sql.syntax import IntervalTerm, NameTerm, SortItem, Term

__all__ = ["Definition", "MatchSource", "Measure"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One item of MEASURES."""

    value: Term
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Definition:
    """One item of DEFINE."""

    variable: str
    condition: Term
    span: Span


@dataclass(frozen=True, slots=True)
class MatchSource:
    """table MATCH_RECOGNIZE (...). `variables` are those of the pattern with the places where they stand first."""

    table: TableSource | SubquerySource
    partition: tuple[NameTerm, ...]
    order: tuple[SortItem, ...]
    measures: tuple[Measure, ...]
    skip: Skip
    skip_span: Span
    pattern: Pattern
    pattern_span: Span
    variables: dict[str, Span]
    within: IntervalTerm | None
    definitions: tuple[Definition, ...]
    span: Span
    alias: Alias
