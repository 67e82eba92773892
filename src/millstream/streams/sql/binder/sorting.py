"""Binds ORDER BY, LIMIT and OFFSET, as far as a stream supports them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.streams.plan.expressions import Column, Expression
from millstream.streams.plan.nodes import Node, inputs_of
from millstream.streams.plan.ordering import OrderKey, Sort
from millstream.streams.sql.binder.relations import fresh_name, project
from millstream.streams.sql.binder.scalars import bind_term
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.syntax.expressions import LiteralTerm, NameTerm, SortItem, StarTerm, Term
from millstream.streams.sql.syntax.queries import OrderedQuery, Select, SelectItem
from millstream.streams.sql.syntax.script import Script
from millstream.streams.sql.syntax.terms import has_aggregates, identity, over_calls_of, with_names

__all__ = ["SelectList", "endless_sort", "order_over_output", "sort_output", "sort_rows"]


@dataclass(frozen=True)
class SelectList:
    """The columns of a SELECT before they are projected: what ORDER BY can name beside the output.

    `order` is ORDER BY over what is read, as `order_over_output` gives it.
    """

    node: Node
    scope: Scope
    items: tuple[SelectItem, ...]
    columns: tuple[tuple[str, Expression], ...]
    order: tuple[SortItem, ...] = ()


def sort_output(query: OrderedQuery, node: Node, script: Script) -> Node:
    """The rows of a query that is no plain SELECT, in the order of its output columns or of values of them."""
    tree = query.query
    items = tree.items if isinstance(tree, Select) and not _has_star(tree.items) else ()
    columns = tuple((of.name, Column(of.name, of.type)) for of in node.schema.fields)
    shown = {identity(item.value): column for item, (_, column) in zip(items, columns, strict=False)}
    scope = Scope(script, node.schema, place="ORDER BY", replaced=shown)
    return sort_rows(query, SelectList(node, scope, (), columns, query.order))


def sort_rows(query: OrderedQuery, selected: SelectList) -> Node:
    """The rows of a SELECT in an order that may name its output, positions and expressions over what it reads."""
    script = selected.scope.script
    names = tuple(name for name, _ in selected.columns)
    used_names = {*names}
    hidden: list[tuple[str, Expression]] = []
    keys = []
    for written, item in zip(query.order, selected.order, strict=True):
        name = _position(written, names, script) or _output(item, selected)
        if name is None:
            value = bind_term(item.value, selected.scope)
            known = [*selected.columns, *hidden]
            name = next((of for of, bound in known if bound == value), None)
            if name is None:
                name = fresh_name("order_key", used_names)
                hidden.append((name, value))
        keys.append(OrderKey(name, item.ascending, item.nulls_first))
    node = selected.node
    if hidden or selected.items:
        node = project(node, (*selected.columns, *hidden))
    result: Node = Sort(node, tuple(keys), query.limit, query.offset)
    if hidden:
        shown = (field for field in result.schema.fields if field.name in names)
        result = project(result, ((field.name, Column(field.name, field.type)) for field in shown))
    return result


def order_over_output(
    order: tuple[SortItem, ...], items: tuple[SelectItem, ...], script: Script
) -> tuple[SortItem, ...]:
    """ORDER BY with the expressions of SELECT in place of the names that these have in the output.

    The output goes before the columns that are read. A name that several columns of the output have is left alone, and
    inside of aggregates and OVER so is one that stands for such a call.
    """
    meanings: dict[str, Term] = {}
    several: set[str] = set()
    for item in items:
        name = item.alias or (item.value.parts[-1] if isinstance(item.value, NameTerm) else None)
        if name is None or isinstance(item.value, StarTerm):
            continue
        if name in meanings and identity(meanings[name]) != identity(item.value):
            several.add(name)
        meanings[name] = item.value
    meanings = {name: term for name, term in meanings.items() if name not in several}
    plain = {name: term for name, term in meanings.items() if not _computes_over_rows(term, script)}
    return tuple(replace(item, value=with_names(item.value, meanings, plain)) for item in order)


def _computes_over_rows(term: Term, script: Script) -> bool:
    return has_aggregates(term, script) or next(over_calls_of(term), None) is not None


def _has_star(items: tuple[SelectItem, ...]) -> bool:
    return any(isinstance(item.value, StarTerm) for item in items)


def _position(item: SortItem, names: tuple[str, ...], script: Script) -> str | None:
    if not isinstance(item.value, LiteralTerm) or not isinstance(item.value.value, int):
        return None
    place = item.value.value
    if not 1 <= place <= len(names):
        message = f"There is no column {place}: the query has {len(names)}."
        raise script.error("SQL_SYNTAX", message, item.span)
    return names[place - 1]


def _output(item: SortItem, selected: SelectList) -> str | None:
    """The output column whose expression the item repeats."""
    if _has_star(selected.items):
        return None
    wanted = identity(item.value)
    places = [place for place, of in enumerate(selected.items) if identity(of.value) == wanted]
    return selected.columns[places[0]][0] if places else None


def endless_sort(node: Node) -> Sort | None:
    """A sort that a stream cannot end: without a limit, and not by ascending time first."""
    if isinstance(node, Sort) and node.limit is None and node.order:
        first = node.input.schema.find(node.order[0].column)
        if first is None or not first.is_time_attribute or not node.order[0].ascending:
            return node
    return next((found for below in inputs_of(node) if (found := endless_sort(below)) is not None), None)
