"""Binds queries: FROM, WHERE, GROUP BY, OVER and SELECT become plan nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from millstream.streams.plan.expressions import Column, Expression, conjuncts_of, is_proctime
from millstream.streams.plan.nodes import Node, Values, Watermarked
from millstream.streams.plan.types import DataType, Field, Schema, TypeKind
from millstream.streams.sql.binder.from_clause import bind_source, table_names
from millstream.streams.sql.binder.grouping import bind_grouped
from millstream.streams.sql.binder.join_conditions import filter_rows
from millstream.streams.sql.binder.query_context import FullNames, QueryContext, TableLookup, check_hints
from millstream.streams.sql.binder.ranking import endless_ranking
from millstream.streams.sql.binder.relations import Relation, fresh_name, project, scope_of
from millstream.streams.sql.binder.scalars import bind_condition, bind_term
from millstream.streams.sql.binder.scopes import Scope, ScopePart
from millstream.streams.sql.binder.select_items import item_columns
from millstream.streams.sql.binder.set_operations import bind_set, bind_values, distinct
from millstream.streams.sql.binder.sorting import SelectList, endless_sort, order_over_output, sort_output, sort_rows
from millstream.streams.sql.binder.subqueries.condition_subqueries import (
    apply_where,
    sides_of_on,
    with_rows_alone,
    with_values,
)
from millstream.streams.sql.binder.subqueries.lateral_queries import lateral_rows
from millstream.streams.sql.binder.windows.over_windows import bind_over
from millstream.streams.sql.parser.names import path_text
from millstream.streams.sql.syntax.expressions import CallTerm, NameTerm, SortItem, Term
from millstream.streams.sql.syntax.queries import (
    OrderedQuery,
    QueryTree,
    Select,
    SelectItem,
    SetQuery,
    ValuesQuery,
    WithQuery,
)
from millstream.streams.sql.syntax.script import Script, Span
from millstream.streams.sql.syntax.terms import (
    aggregates_of,
    calls_of,
    conjunction_of_terms,
    conjuncts_of_term,
    has_aggregates,
    identity,
    names_of,
    over_calls_of,
    with_names,
    with_terms,
)

__all__ = ["TableLookup", "bind_select", "with_current_watermark"]


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
    used_names = set(relation.node.schema.names)
    node = relation.node
    for key, call in calls:
        kind = _kind_of_time(call, relation, context)
        if kind not in names:
            names[kind] = fresh_name(_COLUMN, used_names)
            node = Watermarked(node, names[kind], DataType(kind, precision=_MILLISECONDS))
        meanings[key] = NameTerm((_QUALIFIER, names[kind]), call.span)
    columns = tuple((of.name, Column(of.name, of.type)) for of in node.schema.fields if of.name in names.values())
    part = ScopePart(_QUALIFIER, columns, frozenset(names.values()))
    extended = Relation(node, (*relation.over(node).parts, part))
    return _rewritten(select, meanings), with_terms(order, meanings), extended


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


def bind_select(
    query: QueryTree,
    script: Script,
    lookup: TableLookup,
    full_name: FullNames,
    *,
    is_view: bool = False,
    streaming: bool = True,
) -> Node:
    """The plan of a query. Raises SqlError.

    A view may hold places of rows that only the query over it bounds; a stream may sort by time or with a limit only.
    """
    context = QueryContext(
        script, lookup, full_name, _bind, lateral_rows, apply_where, sides_of_on, with_rows_alone, streaming=streaming
    )
    node = _bind(query, context)
    if is_view:
        return node
    ranking = endless_ranking(node)
    if ranking is not None:
        function = ranking.calls[0].call.function
        span = next((span for name, span in context.rankings if name == function), query.span)
        message = f"The places that {function}() gives would change for ever: no filter bounds them."
        remedy = "Filter them in the query around it, as in SELECT * FROM (...) WHERE rn <= 10."
        raise script.error("SQL_UNSUPPORTED", message, span, remedy=remedy)
    if streaming and endless_sort(node) is not None:
        message = "A stream can be sorted by an ascending time attribute first, or with a LIMIT."
        span = query.order[0].span if isinstance(query, OrderedQuery) and query.order else query.span
        raise script.error("SQL_UNSUPPORTED", message, span, remedy="Add LIMIT, or run it as a batch job.")
    return node


def _bind(query: QueryTree, context: QueryContext) -> Node:
    match query:
        case Select():
            return _bind_project(query, context)
        case ValuesQuery():
            return bind_values(query, context)
        case SetQuery():
            return bind_set(query, context)
        case WithQuery():
            return _with_tables(query, context)
        case OrderedQuery(query=Select(distinct=False) as select):
            order = order_over_output(query.order, select.items, context.script)
            return sort_rows(query, _bind_select_list(select, context, order))
        case OrderedQuery():
            return sort_output(query, _bind(query.query, context), context.script)


def _with_tables(query: WithQuery, context: QueryContext) -> Node:
    tables: dict[str, Node] = {}
    for table in query.tables:
        node = _bind(table.query, _knowing(tables, context))
        if table.columns:
            if len(table.columns) != len(node.schema.fields) or len(set(table.columns)) != len(table.columns):
                message = f"{table.name} names {len(table.columns)} columns, its query has {len(node.schema.fields)}."
                raise context.script.error("SQL_SYNTAX", message, table.span)
            pairs = zip(table.columns, node.schema.fields, strict=True)
            node = project(node, ((name, Column(of.name, of.type)) for name, of in pairs))
        tables[path_text((table.name,))] = node
    return _bind(query.query, _knowing(tables, context))


def _knowing(tables: dict[str, Node], context: QueryContext) -> QueryContext:
    """The context in which the names of a WITH are tables."""
    known = dict(tables)

    def lookup(name: str, span: Span) -> Node:
        return known[name] if name in known else context.lookup(name, span)

    return replace(context, lookup=lookup)


def _bind_project(select: Select, context: QueryContext) -> Node:
    selected = _bind_select_list(select, context)
    if isinstance(selected.node, Values) and not selected.node.schema.fields:
        fields = tuple(Field(name, value.type, proctime=is_proctime(value)) for name, value in selected.columns)
        return Values(Schema(fields), (tuple(value for _, value in selected.columns),))
    node = project(selected.node, selected.columns)
    return distinct(node) if select.distinct else node


def _bind_select_list(select: Select, context: QueryContext, order: tuple[SortItem, ...] = ()) -> SelectList:
    """The rows that SELECT chooses its columns from, and these columns; `order` may name more of the rows."""
    context = replace(context, hints=select.hints)
    chosen = (*(item.value for item in select.items), *(item.value for item in order))
    aggregates = has_aggregates((*chosen, select.qualify), context.script)
    groups = bool(select.groups) or select.having is not None or aggregates
    if select.source is None and select.where is None and not groups:
        return _constants(select, context, order)
    if select.source is None:
        relation = Relation(Values(Schema(()), ((),)), (ScopePart(None, ()),))
    else:
        relation = bind_source(select.source, context)
        names = [part.qualifier for part in relation.parts if part.qualifier is not None]
        check_hints(context, list(dict.fromkeys([*names, *table_names(select.source)])))
        select, order, relation = with_current_watermark(select, order, relation, context)
        chosen = (*(item.value for item in select.items), *(item.value for item in order))
    select = _with_places_apart(select, relation, context)
    relation = apply_where(select.where, relation, context)
    terms = chosen if select.qualify is None else (*chosen, select.qualify)
    if groups:
        inside = (*select.groups, *aggregates_of((*terms, select.having), context.script))
        node, below = with_values(inside, relation.node, scope_of(relation, context.script, "GROUP BY"), context)
        node, scope = bind_grouped(select, terms, relation.over(node), below.replaced, context)
        if select.having is not None:
            node, scope = with_values((select.having,), node, scope, context)
            node = filter_rows(node, conjuncts_of(bind_condition(select.having, scope)))
    else:
        node, scope = relation.node, scope_of(relation, context.script, "SELECT")
    scope = replace(scope, place="SELECT")
    node, scope = with_values(terms, node, scope, context)
    node, scope = bind_over(terms, dict(select.windows), node, scope, context)
    if select.qualify is not None:
        node = filter_rows(node, conjuncts_of(bind_condition(select.qualify, replace(scope, place="QUALIFY"))))
    return SelectList(node, scope, select.items, _columns(select.items, scope), order)


def _with_places_apart(select: Select, relation: Relation, context: QueryContext) -> Select:
    """The SELECT with conditions of WHERE that name the alias of an OVER call in QUALIFY, and with the calls there."""
    places = {item.alias: item.value for item in select.items if next(over_calls_of(item.value), None) is not None}
    scope = scope_of(relation, context.script, "WHERE")
    own = {alias for alias in places if alias and all(part.find(alias) is None for part in scope.sources)}
    if own and select.qualify is not None:
        select = replace(select, qualify=with_names(select.qualify, {name: places[name] for name in own}))
    if not own or select.where is None:
        return select
    terms = list(conjuncts_of_term(select.where))
    moved = [term for term in terms if any(name.parts[0] in own for name in names_of(term))]
    qualify = [with_names(term, {name: places[name] for name in own}) for term in moved]
    qualify += [] if select.qualify is None else [select.qualify]
    where = [term for term in terms if term not in moved]
    return replace(select, where=conjunction_of_terms(where), qualify=conjunction_of_terms(qualify))


def _constants(select: Select, context: QueryContext, order: tuple[SortItem, ...]) -> SelectList:
    """A SELECT without FROM: one row."""
    scope = Scope(context.script, Schema(()), place="a SELECT without FROM", parts=(ScopePart(None, ()),))
    return SelectList(Values(Schema(()), ((),)), scope, select.items, _columns(select.items, scope), order)


def _columns(items: tuple[SelectItem, ...], scope: Scope) -> tuple[tuple[str, Expression], ...]:
    columns: list[tuple[str, Expression]] = []
    used: set[str] = set()
    for number, item in enumerate(items):
        for name, value in item_columns(item, number, scope):
            if name in used and item.alias is not None:
                message = f'Two columns are called "{name}".'
                raise scope.script.error("SQL_SYNTAX", message, item.value.span, remedy="Give one another alias.")
            columns.append((fresh_name(name, used), value))
    return tuple(columns)
