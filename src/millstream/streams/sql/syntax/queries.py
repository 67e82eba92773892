"""The syntax tree of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from millstream.streams.plan.patterns import Pattern, Skip
from millstream.streams.sql.syntax.expressions import (
    CallTerm,
    IntervalTerm,
    NameTerm,
    OverWindow,
    QuerySyntax,
    SortItem,
    StarTerm,
    Term,
)
from millstream.streams.sql.syntax.script import Span

__all__ = [
    "Alias",
    "ChangelogSource",
    "CommonTable",
    "Definition",
    "FilteredSource",
    "FunctionSource",
    "GroupingSets",
    "Hint",
    "JoinSource",
    "LateralSource",
    "MatchSource",
    "MeasureItem",
    "OrderedQuery",
    "PredictionSource",
    "QueryTree",
    "Select",
    "SelectItem",
    "SetQuery",
    "Source",
    "SubquerySource",
    "TableSource",
    "ValuesQuery",
    "WindowSource",
    "WithQuery",
    "item_span",
    "query_tree",
]


@dataclass(frozen=True, slots=True)
class Hint:
    """One hint of `/*+ ... */`: its arguments are `key` = `value` pairs, or keys alone with a blank value."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Alias:
    """The name behind a source, and new names of its columns if there are any."""

    name: str | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table or view. `parts` are catalog, database and name as far as they are given.

    `as_of` is FOR SYSTEM_TIME AS OF.
    """

    parts: tuple[str, ...]
    span: Span
    alias: Alias = Alias()
    hints: tuple[Hint, ...] = ()
    as_of: Term | None = None

    @property
    def name(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class SubquerySource:
    query: QueryTree
    span: Span
    alias: Alias = Alias()


@dataclass(frozen=True, slots=True)
class LateralSource:
    """LATERAL (SELECT ...): a sub-query that may name columns of what stands left of it."""

    query: QueryTree
    span: Span
    alias: Alias = Alias()


@dataclass(frozen=True, slots=True)
class WindowSource:
    """TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL size [, INTERVAL offset])) and its kin; `sizes` by their names."""

    function: str
    table: TableSource | SubquerySource
    partition: tuple[NameTerm, ...]
    time_column: NameTerm
    sizes: tuple[tuple[str, IntervalTerm], ...]
    span: Span
    alias: Alias = Alias()

    def size(self, name: str) -> IntervalTerm | None:
        return next((size for key, size in self.sizes if key == name), None)


@dataclass(frozen=True, slots=True)
class PredictionSource:
    """ML_PREDICT(TABLE t, MODEL m, DESCRIPTOR(a, b)); `model` are the parts of its name."""

    table: TableSource | SubquerySource
    model: tuple[str, ...]
    model_span: Span
    features: tuple[NameTerm, ...]
    span: Span
    alias: Alias = Alias()


@dataclass(frozen=True, slots=True)
class ChangelogSource:
    """TO_CHANGELOG(TABLE t, DESCRIPTOR(op), MAP['a', 'b']) and FROM_CHANGELOG; `mapping` are the pairs of the map.

    `skips` leaves rows out whose code is in no pair.
    """

    function: str
    table: TableSource | SubquerySource
    partition: tuple[NameTerm, ...]
    op: NameTerm | None
    mapping: tuple[tuple[str, str, Span], ...]
    span: Span
    alias: Alias = Alias()
    skips: bool = False


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """LATERAL TABLE(f(...)) or UNNEST(...), which may name columns of what stands left of it."""

    call: CallTerm
    span: Span
    with_ordinality: bool = False
    alias: Alias = Alias()


@dataclass(frozen=True, slots=True)
class MeasureItem:
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
    measures: tuple[MeasureItem, ...]
    skip: Skip
    skip_span: Span
    pattern: Pattern
    pattern_span: Span
    variables: dict[str, Span]
    within: IntervalTerm | None
    definitions: tuple[Definition, ...]
    span: Span
    alias: Alias


@dataclass(frozen=True, slots=True)
class FilteredSource:
    """A source with a WHERE that stands before the JOIN (rsqldb): it filters before the join."""

    source: Source
    where: Term
    span: Span


@dataclass(frozen=True, slots=True)
class JoinSource:
    """Two sources; a comma is a CROSS JOIN. `on`, `using` and `natural` exclude each other."""

    left: Source
    right: Source
    kind: str
    on: Term | None
    using: tuple[NameTerm, ...]
    natural: bool
    span: Span


Source = (
    TableSource
    | SubquerySource
    | LateralSource
    | WindowSource
    | PredictionSource
    | ChangelogSource
    | FunctionSource
    | FilteredSource
    | JoinSource
    | MatchSource
)


@dataclass(frozen=True, slots=True)
class SelectItem:
    value: Term
    alias: str | None


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """GROUPING SETS, CUBE or ROLLUP, as the sets of terms that it stands for."""

    sets: tuple[tuple[Term, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Select(QuerySyntax):
    items: tuple[SelectItem, ...]
    source: Source | None
    where: Term | None
    groups: tuple[Term | GroupingSets, ...]
    having: Term | None
    span: Span
    distinct: bool = False
    qualify: Term | None = None
    windows: tuple[tuple[str, OverWindow], ...] = ()
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class ValuesQuery(QuerySyntax):
    rows: tuple[tuple[Term, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class SetQuery(QuerySyntax):
    """UNION, INTERSECT or EXCEPT of two queries."""

    kind: str
    keep_all: bool
    left: QueryTree
    right: QueryTree
    span: Span


@dataclass(frozen=True, slots=True)
class OrderedQuery(QuerySyntax):
    """A query with ORDER BY, LIMIT, OFFSET or FETCH behind it."""

    query: QueryTree
    order: tuple[SortItem, ...]
    limit: int | None
    offset: int
    span: Span


@dataclass(frozen=True, slots=True)
class CommonTable:
    name: str
    columns: tuple[str, ...]
    query: QueryTree
    span: Span


@dataclass(frozen=True, slots=True)
class WithQuery(QuerySyntax):
    tables: tuple[CommonTable, ...]
    query: QueryTree
    span: Span


QueryTree = Select | ValuesQuery | SetQuery | OrderedQuery | WithQuery


def query_tree(query: QuerySyntax) -> QueryTree:
    """The query of a term, as one of all kinds that there are."""
    return cast("QueryTree", query)


def item_span(query: QueryTree, place: int) -> Span:
    """Where the query says what its column `place` is; the whole query where no one item says it."""
    match query:
        case Select(items=items):
            starred = any(isinstance(item.value, StarTerm) for item in items)
            return query.span if starred or place >= len(items) else items[place].value.span
        case OrderedQuery(query=inner) | WithQuery(query=inner):
            return item_span(inner, place)
        case ValuesQuery(rows=rows):
            return rows[0][place].span if place < len(rows[0]) else query.span
        case SetQuery(left=left):
            return item_span(left, place)
