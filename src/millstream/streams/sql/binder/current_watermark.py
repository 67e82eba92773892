"""CURRENT_WATERMARK(rowtime) bound: a column of the rows of FROM that no star shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from millstream.streams.plan.expressions import Column
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.plan.watermarked import Watermarked
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.binder.relations import Relation, fresh_name, scope_of
from millstream.streams.sql.binder.scalars import bind_term
from millstream.streams.sql.binder.scopes import ScopePart
from millstream.streams.sql.syntax.expressions import CallTerm, NameTerm, SortItem, Term
from millstream.streams.sql.syntax.queries import Select
from millstream.streams.sql.syntax.terms import calls_of, identity, with_terms

__all__ = ["with_current_watermark"]

_NAME: Final = "CURRENT_WATERMARK"
_COLUMN: Final = "current_watermark"
_QUALIFIER: Final = "watermark of the rows"
"""A name that no script has in its way."""

_MILLISECONDS: Final = 3


def with_current_watermark(
    select: Select, order: tuple[SortItem, ...], relation: Relation, context: QueryContext
) -> tuple[Select, tuple[SortItem, ...], Relation]:
    """The query over rows that have the watermark as a column, where it asks for it. Raises SqlError."""
    asking = (select.items, select.where, select.groups, select.having, select.qualify, select.windows, order)
    calls = list({identity(call): call for call in calls_of(asking, _NAME)}.items())
    if not calls:
        return select, order, relation
    meanings: dict[object, Term] = {}
    names: dict[TypeKind, str] = {}
    taken = set(relation.node.schema.names)
    node = relation.node
    for key, call in calls:
        kind = _kind_of_time(call, relation, context)
        if kind not in names:
            names[kind] = fresh_name(_COLUMN, taken)
            node = Watermarked(node, names[kind], DataType(kind, precision=_MILLISECONDS))
        meanings[key] = NameTerm((_QUALIFIER, names[kind]), call.span)
    columns = tuple((of.name, Column(of.name, of.type)) for of in node.schema.fields if of.name in names.values())
    part = ScopePart(_QUALIFIER, columns, frozenset(names.values()))
    told = Relation(node, (*relation.over(node).parts, part))
    return _rewritten(select, meanings), with_terms(order, meanings), told


def _rewritten(select: Select, meanings: Mapping[object, Term]) -> Select:
    items = tuple(
        replace(item, alias=f"EXPR${number}") if item.alias is None and identity(item.value) in meanings else item
        for number, item in enumerate(select.items)
    )
    return replace(
        select,
        items=with_terms(items, meanings),
        where=with_terms(select.where, meanings),
        groups=with_terms(select.groups, meanings),
        having=with_terms(select.having, meanings),
        qualify=with_terms(select.qualify, meanings),
        windows=with_terms(select.windows, meanings),
    )


def _kind_of_time(call: CallTerm, relation: Relation, context: QueryContext) -> TypeKind:
    """The kind of the time attribute that the call names."""
    script = context.script
    if len(call.arguments) == 1:
        value = bind_term(call.arguments[0], scope_of(relation, script, _NAME))
        field = relation.node.schema.find(value.name) if isinstance(value, Column) else None
        if field is not None and field.rowtime:
            return field.type.kind
    known = [of.name for of in relation.node.schema.fields if of.rowtime]
    remedy = f"Here it can be {_NAME}({known[0]})." if known else "Declare a WATERMARK for the table's time."
    message = f"{_NAME} takes one event time attribute: a column that a WATERMARK is declared for."
    raise script.error("SQL_TIME_ATTRIBUTE", message, call.span, remedy=remedy)
