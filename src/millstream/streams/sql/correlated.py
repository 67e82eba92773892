"""Sub-queries as values that name columns of the query around them: one group for each of these columns' values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import BIGINT
from millstream.streams.sql.from_clause import bind_source
from millstream.streams.sql.query_context import QueryContext
from millstream.streams.sql.query_syntax import Select, SelectItem
from millstream.streams.sql.relations import renamed_apart, scope_of
from millstream.streams.sql.scalars import bind_term
from millstream.streams.sql.scopes import Part, Scope, column_of_name
from millstream.streams.sql.script import Span
from millstream.streams.sql.syntax import CallTerm, NameTerm, Operation, QueryTerm, Term
from millstream.streams.sql.terms import aggregates_of, conjunction_of_terms, conjuncts_of_term, names_of

__all__ = ["SingleValue", "correlated_value", "equation"]


@dataclass(frozen=True)
class SingleValue:
    """The rows of a sub-query that gives one value, that value as an expression of them, and what joins them.

    Without `conditions` there is one row; with them there may be none, whose value is that of NULL columns.
    """

    node: Node
    value: Expression
    conditions: tuple[Expression, ...] = ()


def correlated_value(
    query: QueryTerm, outer: Scope, taken: Collection[str], context: QueryContext
) -> SingleValue | None:
    """The value by the columns around it, whose names are not to be `taken`; None if it names none. Raises SqlError.

    It is an aggregate without GROUP BY whose WHERE compares columns of its own with those around it by =.
    """
    select = query.query
    if not isinstance(select, Select) or select.source is None or select.where is None:
        return None
    here = scope_of(bind_source(select.source, replace(context, hints=(), outer=None)), context.script, "WHERE")
    terms = list(conjuncts_of_term(select.where))
    around = [term for term in terms if any(_is_around(name, here, outer) for name in names_of(term))]
    if not around:
        return None
    pairs = [_sides(term, here, outer) for term in around]
    script = context.script
    has_one = len(select.items) == 1 and next(aggregates_of(select.items[0].value, script), None) is not None
    if None in pairs or not has_one or select.groups or select.having is not None or select.distinct:
        message = (
            "A sub-query as a value that names columns of the query around it is one aggregate, and names them in =."
        )
        remedy = "Write (SELECT MAX(t.x) FROM t WHERE t.key = outer.key), or a LEFT JOIN."
        raise script.error("SQL_UNSUPPORTED", message, query.span, remedy=remedy)
    sides = [pair for pair in pairs if pair is not None]
    grouped = replace(
        select,
        items=(*select.items, *(SelectItem(mine, f"around_{place}") for place, (mine, _) in enumerate(sides))),
        where=conjunction_of_terms([term for term in terms if term not in around]),
        groups=tuple(dict.fromkeys(mine for mine, _ in sides)),
    )
    node, _ = renamed_apart(context.bind(grouped, replace(context, hints=(), outer=None)), taken)
    value, *keys = (Column(of.name, of.type.as_nullable()) for of in node.schema.fields)
    conditions = tuple(
        equation(bind_term(theirs, outer), key, theirs.span, outer)
        for (_, theirs), key in zip(sides, keys, strict=True)
    )
    return SingleValue(node, _of_no_rows(select.items[0].value, value), conditions)


def _sides(term: Term, here: Scope, outer: Scope) -> tuple[Term, Term] | None:
    """The side of an equation that is of the sub-query, and the one of the query around it."""
    if not isinstance(term, Operation) or term.operator != "=":
        return None
    for mine, theirs in (term.operands, term.operands[::-1]):
        own = list(names_of(mine))
        if own and all(column_of_name(name, here) is not None for name in own):
            other = list(names_of(theirs))
            if all(_is_around(name, here, outer) for name in other):
                return mine, theirs
    return None


def _is_around(name: NameTerm, here: Scope, outer: Scope) -> bool:
    """Whether a name means a column of the query around the sub-query."""
    return column_of_name(name, here) is None and column_of_name(name, outer) is not None


def _of_no_rows(term: Term, value: Column) -> Expression:
    """A count of no rows is 0; all other aggregates of none are NULL."""
    if not isinstance(term, CallTerm) or term.name not in ("COUNT", "APPROX_COUNT_DISTINCT"):
        return value
    return Call("COALESCE", (value, Literal(0, BIGINT.as_nullable(False))), BIGINT.as_nullable(False))


def equation(mine: Expression, other: Expression, span: Span, scope: Scope) -> Expression:
    """Both as the sides of an =, bound as SQL's own."""
    parts = (Part(None, (("left", mine), ("right", other))),)
    sides = NameTerm(("left",), span), NameTerm(("right",), span)
    return bind_term(Operation("=", sides, span), replace(scope, parts=parts))
