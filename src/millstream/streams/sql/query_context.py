"""What the parts of a query's binding share: the script, the tables, and how an inner query is bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.streams.plan.joins import JoinKind
from millstream.streams.plan.nodes import Node
from millstream.streams.sql.query_syntax import Hint, LateralSource, QueryTree
from millstream.streams.sql.relations import Relation
from millstream.streams.sql.scopes import Scope
from millstream.streams.sql.script import Script, Span
from millstream.streams.sql.syntax import Term

__all__ = ["FullNames", "QueryContext", "TableLookup"]

TableLookup = Callable[[str, Span], Node]
"""The rows of a table or view by name; raises SQL_UNKNOWN_TABLE at the span."""

FullNames = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Catalog, database and name of a table by the parts that are given."""


Lateral = Callable[[Relation, LateralSource, JoinKind, Term | None, "QueryContext"], Relation]
"""How LATERAL (SELECT ...) is joined to what stands left of it; the condition is that of ON."""


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
    hints: tuple[Hint, ...] = ()
    outer: Scope | None = None
    streaming: bool = True
    rankings: list[tuple[str, Span]] = field(default_factory=list)
