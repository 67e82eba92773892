"""Binds correlated sub-queries: grouped or ranked by the correlation key, and joined."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import BIGINT, BOOLEAN
from millstream.streams.sql.binder.from_clause import bind_source
from millstream.streams.sql.binder.join_conditions import filter_rows
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.binder.relations import rename_apart, scope_of
from millstream.streams.sql.binder.scalars import bind_term
from millstream.streams.sql.binder.scopes import Scope, ScopePart, column_of_name
from millstream.streams.sql.syntax.expressions import (
    CallTerm,
    CaseTerm,
    LiteralTerm,
    NameTerm,
    Operation,
    OverWindow,
    QueryTerm,
    SortItem,
    StarTerm,
    Term,
)
from millstream.streams.sql.syntax.queries import (
    Alias,
    OrderedQuery,
    QueryTree,
    Select,
    SelectItem,
    SubquerySource,
    query_tree,
)
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.terms import (
    aggregates_of,
    conjunction_of_terms,
    conjuncts_of_term,
    has_aggregates,
    identity,
    names_of,
    over_calls_of,
    with_names,
)

__all__ = [
    "CorrelatedRows",
    "SingleValue",
    "correlate_rows",
    "correlated_value",
    "equation",
    "has_one_row",
    "only_value",
    "outer_names_of",
]

_PLACE = "place_around"
_GROUPS = "groups of the sub-query"
"""A name that no script can have in its way: it is not shown."""

_COUNTS = ("COUNT", "APPROX_COUNT_DISTINCT")


@dataclass(frozen=True)
class SingleValue:
    """The rows of a sub-query that gives one value, that value as an expression of them, and what joins them.

    Without `conditions` there is one row; with them there may be none, whose value is that of NULL columns.
    """

    node: Node
    value: Expression
    conditions: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class CorrelatedRows:
    """The rows of a sub-query for all rows around it, its own columns by name, and what joins both.

    `is_one_row` says that SQL has one row for each row around, where the join may find none.
    """

    node: Node
    columns: tuple[tuple[str, Expression], ...]
    conditions: tuple[Expression, ...]
    is_one_row: bool = False


@dataclass(frozen=True)
class _SplitSelect:
    """A SELECT, those conditions of it that name columns around it as pairs (of its own, around), and the others."""

    select: Select
    pairs: tuple[tuple[Term, Term], ...]
    rest: Term | None


def has_one_row(select: Select, context: QueryContext) -> bool:
    """Whether the SELECT gives one row whatever there is: aggregates without GROUP BY and HAVING."""
    script = context.script
    return not select.groups and select.having is None and any(has_aggregates(of.value, script) for of in select.items)


def only_value(term: Term) -> Term:
    """The value of the only row there is; NULL where there are several."""
    span = term.span
    one = Operation("=", (CallTerm("COUNT", (), span, span, star=True), LiteralTerm(1, span)), span)
    return CaseTerm(None, ((one, CallTerm("MAX", (term,), span, span)),), None, span)


def correlated_value(
    query: QueryTerm, outer: Scope, taken: Collection[str], context: QueryContext
) -> SingleValue | None:
    """The value by the columns around it, whose names are not to be `taken`; None if it names none. Raises SqlError.

    It is an aggregate without GROUP BY, the first row of an order, or the value of the only row there is.
    """
    tree = query_tree(query.query)
    if isinstance(tree, OrderedQuery) and isinstance(tree.query, Select) and tree.limit == 1 and not tree.order:
        # Any row will do, and this one is the same however rows come.
        tree = _with_item(tree.query, lambda term: CallTerm("MAX", (term,), term.span, term.span))
    elif isinstance(tree, Select) and (tree.groups or tree.having is not None or tree.distinct):
        tree = _over_groups(tree, outer, context)
    elif isinstance(tree, Select) and not has_one_row(tree, context):
        tree = _with_item(tree, only_value)
    rows = correlate_rows(tree, outer, taken, context)
    if rows is None:
        return None
    limited = isinstance(tree, OrderedQuery) and tree.limit == 1
    if len(rows.columns) != 1 or not (rows.is_one_row or limited):
        message = "A sub-query as a value that names columns of the query around it gives one column and one row."
        remedy = "Write (SELECT MAX(t.x) FROM t WHERE t.key = outer.key), or add ORDER BY ... LIMIT 1."
        raise context.script.error("SQL_UNSUPPORTED", message, query.span, remedy=remedy)
    return SingleValue(rows.node, rows.columns[0][1], rows.conditions)


def _with_item(select: Select, change: Callable[[Term], Term]) -> Select:
    if len(select.items) != 1 or isinstance(select.items[0].value, StarTerm):
        return select
    return replace(select, items=(replace(select.items[0], value=change(select.items[0].value)),))


def _over_groups(select: Select, outer: Scope, context: QueryContext) -> Select:
    """The SELECT of the only row of a grouping, which becomes a sub-query in FROM with what is compared as columns."""
    parted = _split_conditions(select, outer, context)
    if parted is None or len(select.items) != 1:
        return select
    names = tuple(f"around {place}" for place, _ in enumerate(parted.pairs))
    grouped = _add_keys(parted, tuple(mine for mine, _ in parted.pairs), context)
    source = SubquerySource(grouped, select.span, Alias(_GROUPS, ("value", *names)))
    conditions: list[Term] = [
        Operation("=", (NameTerm((_GROUPS, name), theirs.span), theirs), theirs.span)
        for name, (_, theirs) in zip(names, parted.pairs, strict=True)
    ]
    value = only_value(NameTerm((_GROUPS, "value"), select.span))
    return Select((SelectItem(value, None),), source, conjunction_of_terms(conditions), (), None, select.span)


def correlate_rows(
    query: QueryTree, outer: Scope, taken: Collection[str], context: QueryContext
) -> CorrelatedRows | None:
    """The rows of a sub-query by the columns around it, under names that are not `taken`; None if it names none.

    Raises SqlError for what cannot be grouped or ranked by these columns.
    """
    ordered = query if isinstance(query, OrderedQuery) else None
    parted = _split_conditions(query if ordered is None else ordered.query, outer, context)
    if parted is None:
        return None
    _check(parted.select, ordered, context)
    if has_one_row(parted.select, context):
        return _one_row(parted, outer, taken, context)
    keys = tuple(mine for mine, _ in parted.pairs)
    node = context.bind(_add_rank(_add_keys(parted, keys, context), ordered, keys, context), _inside(context))
    if ordered is not None and ordered.limit is not None:
        node = filter_rows(node, _places(node, ordered.offset, ordered.limit))
    node, new = rename_apart(node, taken)
    shown = [name for name in new if name != _PLACE]
    own = shown[: len(shown) - len(keys)]
    columns = tuple((name, _column(node, new[name])) for name in own)
    return CorrelatedRows(node, columns, _equations(parted, node, [new[name] for name in shown[len(own) :]], outer))


def _inside(context: QueryContext) -> QueryContext:
    return replace(context, hints=(), outer=None)


def _split_conditions(query: QueryTree, outer: Scope, context: QueryContext) -> _SplitSelect | None:
    """The SELECT with its conditions apart; None unless it names columns around it."""
    if not isinstance(query, Select) or query.source is None or query.where is None:
        return None
    here = scope_of(bind_source(query.source, _inside(context)), context.script, "WHERE")
    terms = list(conjuncts_of_term(query.where))
    around = [term for term in terms if any(_is_outer(name, here, outer) for name in names_of(term))]
    if not around:
        return None
    pairs = []
    for term in around:
        sides = _sides(term, here, outer)
        if sides is None:
            message = "This sub-query may compare its columns with those of the query around it by = only."
            remedy = "Write a LEFT JOIN, or EXISTS in WHERE, which take other comparisons."
            raise context.script.error("SQL_UNSUPPORTED", message, term.span, remedy=remedy)
        pairs.append(sides)
    return _SplitSelect(query, tuple(pairs), conjunction_of_terms([term for term in terms if term not in around]))


def _check(select: Select, ordered: OrderedQuery | None, context: QueryContext) -> None:
    """Refuse what would count or order rows of all rows around together."""
    if ordered is not None and ordered.limit is not None and select.distinct:
        message = "A LIMIT here takes no DISTINCT: it ranks the rows for each row of the query around."
        remedy = "Write GROUP BY with the columns in place of DISTINCT."
        raise context.script.error("SQL_UNSUPPORTED", message, ordered.span, remedy=remedy)
    calls = [call for item in select.items for call in over_calls_of(item.value)]
    if calls or select.qualify is not None:
        message = "OVER is not supported in a sub-query that names columns of the query around it."
        span = calls[0].span if calls else select.span
        raise context.script.error("SQL_UNSUPPORTED", message, span, remedy="Use ORDER BY ... LIMIT n.")


def _add_keys(parted: _SplitSelect, keys: tuple[Term, ...], context: QueryContext) -> Select:
    """The SELECT without the conditions that name columns around it, with its sides of them as columns at the end."""
    select, script = parted.select, context.script
    grouped = select.groups or select.having is not None or any(has_aggregates(of.value, script) for of in select.items)
    return replace(
        select,
        items=(*select.items, *(SelectItem(key, f"around_{place}") for place, key in enumerate(keys))),
        where=parted.rest,
        groups=(*select.groups, *dict.fromkeys(keys)) if grouped else (),
    )


def _add_rank(select: Select, ordered: OrderedQuery | None, keys: tuple[Term, ...], context: QueryContext) -> Select:
    """The SELECT with the place of each row among those of its keys, where a LIMIT asks for it."""
    if ordered is None or ordered.limit is None:
        return select
    named = {item.alias: item.value for item in select.items if item.alias is not None}
    order = tuple(replace(item, value=_ordering(item, select, named)) for item in ordered.order)
    # Without an order all rows of a key are equal in it, so those that come first stay.
    order = order or tuple(SortItem(key, True, None, key.span) for key in keys)
    window = OverWindow(None, tuple(dict.fromkeys(keys)), order, True, None, ordered.span)
    place = CallTerm("ROW_NUMBER", (), ordered.span, ordered.span, over=window)
    return replace(select, items=(*select.items, SelectItem(place, _PLACE)))


def _ordering(item: SortItem, select: Select, named: dict[str, Term]) -> Term:
    """What is ordered by, where it is an alias or a position of SELECT."""
    value = item.value
    position = value.value if isinstance(value, LiteralTerm) else None
    if isinstance(position, int) and 0 < position <= len(select.items):
        return select.items[position - 1].value
    return with_names(value, named)


def _places(node: Node, offset: int, limit: int) -> list[Expression]:
    place = _column(node, _PLACE)
    last = Call("<=", (place, Literal(offset + limit, BIGINT.as_nullable(False))), BOOLEAN)
    first = Call(">", (place, Literal(offset, BIGINT.as_nullable(False))), BOOLEAN)
    return [last, first] if offset else [last]


def _column(node: Node, name: str) -> Column:
    field = node.schema.find(name)
    assert field is not None
    return Column(name, field.type.as_nullable())


def _equations(parted: _SplitSelect, node: Node, names: list[str], outer: Scope) -> tuple[Expression, ...]:
    return tuple(
        equation(bind_term(theirs, outer), _column(node, name), theirs.span, outer)
        for (_, theirs), name in zip(parted.pairs, names, strict=True)
    )


def _one_row(parted: _SplitSelect, outer: Scope, taken: Collection[str], context: QueryContext) -> CorrelatedRows:
    """Aggregates without GROUP BY: a group for each value around, and values of no rows where there is none."""
    select = parted.select
    called = (call for item in select.items for call in aggregates_of(item.value, context.script))
    called = (call for item in select.items for call in aggregates_of(item.value, context.script))
    calls = list({identity(call): call for call in called}.items())
    keys = tuple(mine for mine, _ in parted.pairs)
    aggregates = tuple(SelectItem(call, f"aggregate_{place}") for place, (_, call) in enumerate(calls))
    inner = replace(parted, select=replace(select, items=aggregates))
    node, new = rename_apart(context.bind(_add_keys(inner, keys, context), _inside(context)), taken)
    names = list(new.values())
    values = {key: _of_no_rows(call, _column(node, name)) for (key, call), name in zip(calls, names, strict=False)}
    above = Scope(context.script, node.schema, replaced=values, parts=(ScopePart(None, ()),), place="SELECT")
    columns = tuple(
        (item.alias or f"EXPR${place}", bind_term(item.value, above)) for place, item in enumerate(select.items)
    )
    return CorrelatedRows(node, columns, _equations(parted, node, names[len(calls) :], outer), is_one_row=True)


def outer_names_of(query: QueryTree, context: QueryContext) -> list[NameTerm]:
    """The names in the conditions and items of a sub-query that mean none of its own columns."""
    query = query.query if isinstance(query, OrderedQuery) else query
    if not isinstance(query, Select) or query.source is None:
        return []
    here = scope_of(bind_source(query.source, _inside(context)), context.script, "WHERE")
    values = (query.where, *(item.value for item in query.items))
    return [name for name in names_of(values) if column_of_name(name, here) is None]


def _sides(term: Term, here: Scope, outer: Scope) -> tuple[Term, Term] | None:
    """The side of an equation that is of the sub-query, and the one of the query around it."""
    if not isinstance(term, Operation) or term.operator != "=":
        return None
    for mine, theirs in (term.operands, term.operands[::-1]):
        own = list(names_of(mine))
        if own and all(column_of_name(name, here) is not None for name in own):
            other = list(names_of(theirs))
            if all(_is_outer(name, here, outer) for name in other):
                return mine, theirs
    return None


def _is_outer(name: NameTerm, here: Scope, outer: Scope) -> bool:
    """Whether a name means a column of the query around the sub-query."""
    return column_of_name(name, here) is None and column_of_name(name, outer) is not None


def _of_no_rows(term: CallTerm, value: Column) -> Expression:
    """A count of no rows is 0; all other aggregates of none are NULL."""
    if term.name not in _COUNTS:
        return value
    return Call("COALESCE", (value, Literal(0, BIGINT.as_nullable(False))), BIGINT.as_nullable(False))


def equation(mine: Expression, other: Expression, span: Span, scope: Scope) -> Expression:
    """Both as the sides of an =, bound as SQL's own."""
    parts = (ScopePart(None, (("left", mine), ("right", other))),)
    sides = NameTerm(("left",), span), NameTerm(("right",), span)
    return bind_term(Operation("=", sides, span), replace(scope, parts=parts, in_group=False, replaced={}))
