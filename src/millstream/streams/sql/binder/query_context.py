"""What the parts of a query's binding share: the script, the tables, and how an inner query is bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.joins import JoinKind
from millstream.streams.plan.nodes import Node
from millstream.streams.sql.binder.relations import Relation
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.syntax.expressions import Term
from millstream.streams.sql.syntax.queries import Hint, LateralSource, QueryTree
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["FullNames", "QueryContext", "SidesWithAnswers", "TableLookup"]

TableLookup = Callable[[str, Span], Node]
"""The rows of a table or view by name; raises SQL_UNKNOWN_TABLE at the span."""

FullNames = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Catalog, database and name of a table by the parts that are given."""


@dataclass(frozen=True)
class SidesWithAnswers:
    """Both sides of a join with the answers of sub-queries as columns, and what stands for these in the rest of ON."""

    left: Relation
    right: Relation
    on: Term | None
    left_values: Mapping[object, Expression]
    right_values: Mapping[object, Expression]


Lateral = Callable[[Relation, LateralSource, JoinKind, Term | None, "QueryContext"], Relation]
"""How LATERAL (SELECT ...) is joined to what stands left of it; the condition is that of ON."""


Where = Callable[[Term | None, Relation, "QueryContext"], Relation]
"""The rows that fit a condition, which may hold sub-queries."""

SidesOfOn = Callable[[Relation, Relation, JoinKind, Term, "QueryContext"], SidesWithAnswers | None]
"""What becomes of the two sides of an outer join whose ON holds sub-queries; None where one asks about both sides."""


@dataclass(frozen=True)
class QueryContext:
    """`hints` are those of the SELECT that is bound; `rankings` collects where functions of the place stand.

    In a batch job, which is not `streaming`, OVER may look at whole partitions.
    """

    script: Script
    lookup: TableLookup
    full_name: FullNames
    bind: Callable[[QueryTree, QueryContext], Node]
    lateral: Lateral
    where: Where
    sides_of_on: SidesOfOn
    with_rows_alone: Callable[[Relation, Relation, Relation, JoinKind], Relation]
    hints: tuple[Hint, ...] = ()
    outer: Scope | None = None
    streaming: bool = True
    rankings: list[tuple[str, Span]] = field(default_factory=list)
