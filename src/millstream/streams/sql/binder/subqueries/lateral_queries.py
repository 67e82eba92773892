"""Binds LATERAL (SELECT ...): a sub-query per left row, as a join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.streams.plan.expressions import Column, Expression, conjuncts_of
from millstream.streams.plan.joins import JoinKind
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import Schema
from millstream.streams.sql.binder.from_clause import bind_source
from millstream.streams.sql.binder.join_conditions import filter_rows, join_nodes
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.binder.relations import (
    Relation,
    as_columns,
    fresh_name,
    rename_apart,
    rename_columns,
    scope_of,
)
from millstream.streams.sql.binder.scalars import bind_condition
from millstream.streams.sql.binder.scopes import Scope, ScopePart, column_of_name
from millstream.streams.sql.binder.select_items import item_columns
from millstream.streams.sql.binder.subqueries.condition_subqueries import apply_where, is_plain
from millstream.streams.sql.binder.subqueries.correlated import CorrelatedRows, correlate_rows
from millstream.streams.sql.syntax.expressions import Term
from millstream.streams.sql.syntax.queries import LateralSource, Select
from millstream.streams.sql.syntax.terms import conjuncts_of_term, names_of

__all__ = ["lateral_rows"]

_Columns = Sequence[tuple[str, Expression]]


def lateral_rows(
    left: Relation, source: LateralSource, kind: JoinKind, on: Term | None, context: QueryContext
) -> Relation:
    """The rows of `left`, each with the rows of the sub-query for it. LEFT is joined ON TRUE. Raises SqlError."""
    script = context.script
    if kind not in (JoinKind.INNER, JoinKind.LEFT):
        message = f"{kind.value} JOIN with LATERAL is not supported."
        raise script.error("SQL_UNSUPPORTED", message, source.span, remedy="Use LEFT JOIN ... ON TRUE or CROSS JOIN.")
    relation = _with_rows(left, source, kind, context)
    conditions = [] if on is None else conjuncts_of(bind_condition(on, scope_of(relation, script, "ON")))
    if conditions and kind is JoinKind.LEFT:
        message = "LEFT JOIN with LATERAL takes ON TRUE only."
        raise script.error("SQL_UNSUPPORTED", message, source.span, remedy="Move the condition into the sub-query.")
    return relation.over(filter_rows(relation.node, conditions))


def _with_rows(left: Relation, source: LateralSource, kind: JoinKind, context: QueryContext) -> Relation:
    query = source.query
    outer = scope_of(left, context.script, "LATERAL")
    if isinstance(query, Select) and is_plain(query, context.script):
        return _plain(left, query, source, kind, context)
    rows = correlate_rows(query, outer, left.node.schema.names, context)
    if rows is None:
        node, _ = rename_apart(context.bind(query, _inside(context)), left.node.schema.names)
        rows = CorrelatedRows(node, tuple((of.name, Column(of.name, of.type)) for of in node.schema.fields), ())
    join = join_nodes(left.node, rows.node, JoinKind.LEFT if rows.is_one_row else kind, rows.conditions)
    return _beside(left.over(join), rows.columns, source, context)


def _inside(context: QueryContext) -> QueryContext:
    return replace(context, hints=(), outer=None)


def _plain(left: Relation, select: Select, source: LateralSource, kind: JoinKind, context: QueryContext) -> Relation:
    """A sub-query that filters and chooses: a join whose conditions may name both sides, as the items may."""
    if select.source is None:
        return _compute_items(left, select, source, kind, context)
    script, inside = context.script, _inside(context)
    right = bind_source(select.source, inside)
    here = scope_of(right, script, "LATERAL")
    terms = [] if select.where is None else list(conjuncts_of_term(select.where))
    own = [term for term in terms if _is_of(term, here)]
    for term in own:
        right = apply_where(term, right, inside)
    below = scope_of(right, script, "LATERAL")
    items = [(number, item, _is_of(item.value, here)) for number, item in enumerate(select.items)]
    made = {number: list(item_columns(item, number, below)) for number, item, is_own in items if is_own}
    values = [value for columns in made.values() for _, value in columns]
    node, names = as_columns(right.node, values, "item")
    node, new = rename_apart(node, left.node.schema.names)
    parts = tuple(
        replace(part, columns=tuple((name, rename_columns(value, new)) for name, value in part.columns))
        for part in right.parts
    )
    both = Scope(script, node.schema, place="LATERAL", parts=parts, outer=scope_of(left, script, "LATERAL"))
    conditions = [bind_condition(term, both) for term in terms if term not in own]
    join = join_nodes(left.node, node, kind, [part for of in conditions for part in conjuncts_of(of)])
    columns: list[tuple[str, Expression]] = []
    computed = iter(names)
    for number, item, is_own in items:
        if is_own:
            columns += [(name, _column(join, new[next(computed)])) for name, _ in made[number]]
        elif kind is JoinKind.LEFT:
            message = "Behind LEFT JOIN LATERAL the SELECT names its own columns only."
            raise script.error("SQL_UNSUPPORTED", message, item.value.span, remedy="Compute it in the outer SELECT.")
        else:
            columns += item_columns(item, number, both)
    return _beside(left.over(join), columns, source, context)


def _compute_items(
    left: Relation, select: Select, source: LateralSource, kind: JoinKind, context: QueryContext
) -> Relation:
    """A SELECT without FROM: expressions of each row."""
    script = context.script
    scope = Scope(
        script, Schema(()), place="LATERAL", parts=(ScopePart(None, ()),), outer=scope_of(left, script, "LATERAL")
    )
    if select.where is not None and kind is JoinKind.LEFT:
        message = "LEFT JOIN LATERAL of a SELECT without FROM takes no WHERE."
        raise script.error("SQL_UNSUPPORTED", message, select.where.span, remedy="Use CASE WHEN in its items.")
    conditions = [] if select.where is None else conjuncts_of(bind_condition(select.where, scope))
    listed = [column for number, item in enumerate(select.items) for column in item_columns(item, number, scope)]
    node, names = as_columns(filter_rows(left.node, conditions), [value for _, value in listed], "item")
    columns = [(name, _column(node, of)) for (name, _), of in zip(listed, names, strict=True)]
    return _beside(left.over(node), columns, source, context)


def _is_of(term: Term, scope: Scope) -> bool:
    """Whether all names of the term are those of the scope."""
    return all(column_of_name(name, scope) is not None for name in names_of(term))


def _column(node: Node, name: str) -> Column:
    field = node.schema.find(name)
    assert field is not None
    return Column(name, field.type)


def _beside(relation: Relation, columns: _Columns, source: LateralSource, context: QueryContext) -> Relation:
    """The relation with a part of the columns, under the names of the alias."""
    alias, taken = source.alias, set[str]()
    if alias.columns and len(alias.columns) != len(columns):
        message = f"The alias names {len(alias.columns)} columns, but the sub-query gives {len(columns)}."
        raise context.script.error("SQL_SYNTAX", message, source.span)
    if alias.name is not None and any(part.qualifier == alias.name for part in relation.parts):
        message = f'Two tables in FROM are called "{alias.name}".'
        raise context.script.error("SQL_SYNTAX", message, source.span, remedy="Give one of them another alias.")
    names = alias.columns or [fresh_name(name, taken) for name, _ in columns]
    part = ScopePart(alias.name, tuple((name, value) for name, (_, value) in zip(names, columns, strict=True)))
    return Relation(relation.node, (*relation.parts, part))
