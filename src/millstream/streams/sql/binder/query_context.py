"""The context of binding a query: script, tables, hints, and the binding of inner queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from millstream.streams.connectors.options import OptionProblem, milliseconds
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.joins import JoinKind
from millstream.streams.plan.nodes import Node, Scan
from millstream.streams.sql.binder.relations import Relation
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.options.option_checks import check_options
from millstream.streams.sql.syntax.expressions import Term
from millstream.streams.sql.syntax.queries import Hint, LateralSource, QueryTree
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean

__all__ = [
    "FullNames",
    "QueryContext",
    "SidesWithAnswers",
    "TableLookup",
    "check_hints",
    "lookup_hints",
    "state_ttl_ms",
    "with_options",
]


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


def with_options(scan: Scan, hints: tuple[Hint, ...], script: Script) -> Scan:
    """The scan of the table with the options of OPTIONS(...) in place of its own. Raises SQL_OPTION."""
    options = dict(scan.table.options)
    for hint in hints:
        options.update(hint.arguments)
        try:
            options = check_options(options).options
        except OptionProblem as problem:
            raise script.error("SQL_OPTION", problem.message, hint.span, remedy=problem.remedy) from None
    return replace(scan, table=replace(scan.table, options=options))


def lookup_hints(context: QueryContext, names: Collection[str]) -> tuple[tuple[str, str], ...]:
    """What LOOKUP('table' = 'one of the names', ...) says beside the table."""
    for hint in context.hints:
        arguments = dict(hint.arguments)
        if hint.name == "LOOKUP" and arguments.get("table") in names:
            return tuple((key, value) for key, value in hint.arguments if key != "table")
    return ()


def state_ttl_ms(context: QueryContext, names: Collection[str]) -> int | None:
    """What STATE_TTL('name' = 'duration') says of one of the names. Raises SQL_OPTION at what is no duration."""
    for hint in context.hints:
        if hint.name != "STATE_TTL":
            continue
        for key, value in hint.arguments:
            if key in names:
                return _duration_ms(value, hint, context.script)
    return None


def _duration_ms(text: str, hint: Hint, script: Script) -> int:
    try:
        return milliseconds(text)
    except ValueError:
        message, remedy = f"'{text}' is no duration.", "Write a number and a unit, as in '1 d' or '30 s'."
        raise script.error("SQL_OPTION", message, hint.span, remedy=remedy) from None


def check_hints(context: QueryContext, names: Collection[str]) -> None:
    """Refuse hints of tables that are not among the names and aliases of FROM."""
    for hint in context.hints:
        tables = [key for key, _ in hint.arguments]
        if hint.name == "LOOKUP":
            tables = [value for key, value in hint.arguments if key == "table"]
            if not tables:
                message = "LOOKUP needs 'table' = 'name'."
                raise context.script.error("SQL_OPTION", message, hint.span)
        for table in tables:
            if table not in names:
                message = f'{hint.name} names "{table}", which is not in FROM.'
                remedy = did_you_mean(table, list(names)) or f"In FROM: {', '.join(names)}."
                raise context.script.error("SQL_UNKNOWN_TABLE", message, hint.span, remedy=remedy)
