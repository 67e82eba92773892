"""ORDER BY, LIMIT and OFFSET bound, and what of them a stream can do."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.expressions import Column, Expression
from millstream.streams.plan.nodes import Node, inputs_of
from millstream.streams.plan.ordering import OrderKey, Sort
from millstream.streams.sql.query_syntax import OrderedQuery, SelectItem
from millstream.streams.sql.relations import fresh, project
from millstream.streams.sql.scalars import bind_term
from millstream.streams.sql.scopes import Scope, identity
from millstream.streams.sql.script import Script
from millstream.streams.sql.syntax import LiteralTerm, NameTerm, SortItem, StarTerm

__all__ = ["SelectList", "endless_sort", "sorted_output", "sorted_rows"]


@dataclass(frozen=True)
class SelectList:
    """The columns of a SELECT before they are projected: what ORDER BY can name beside the output."""

    node: Node
    scope: Scope
    items: tuple[SelectItem, ...]
    columns: tuple[tuple[str, Expression], ...]


def sorted_output(query: OrderedQuery, node: Node, script: Script) -> Node:
    """The rows of a query that is no plain SELECT, in the order of output columns."""
    scope = Scope(script, node.schema, place="ORDER BY")
    keys = []
    for item in query.order:
        name = _position(item, node.schema.names, script)
        if name is None:
            bound = bind_term(item.value, scope)
            if not isinstance(bound, Column):
                message = "ORDER BY takes columns of the result here."
                raise script.error("SQL_UNSUPPORTED", message, item.span, remedy="Use a sub-query.")
            name = bound.name
        keys.append(OrderKey(name, item.ascending, item.nulls_first))
    return Sort(node, tuple(keys), query.limit, query.offset)


def sorted_rows(query: OrderedQuery, selected: SelectList) -> Node:
    """The rows of a SELECT in an order that may name its aliases, positions and expressions over what it reads."""
    script = selected.scope.script
    names = tuple(name for name, _ in selected.columns)
    taken = {*names}
    hidden: list[tuple[str, Expression]] = []
    keys = []
    for item in query.order:
        name = _position(item, names, script) or _output(item, selected)
        if name is None:
            value = bind_term(item.value, selected.scope)
            known = [*selected.columns, *hidden]
            name = next((of for of, bound in known if bound == value), None)
            if name is None:
                name = fresh("order_key", taken)
                hidden.append((name, value))
        keys.append(OrderKey(name, item.ascending, item.nulls_first))
    node = project(selected.node, (*selected.columns, *hidden))
    result: Node = Sort(node, tuple(keys), query.limit, query.offset)
    if hidden:
        shown = (field for field in result.schema.fields if field.name in names)
        result = project(result, ((field.name, Column(field.name, field.type)) for field in shown))
    return result


def _position(item: SortItem, names: tuple[str, ...], script: Script) -> str | None:
    if not isinstance(item.value, LiteralTerm) or not isinstance(item.value.value, int):
        return None
    place = item.value.value
    if not 1 <= place <= len(names):
        message = f"There is no column {place}: the query has {len(names)}."
        raise script.error("SQL_SYNTAX", message, item.span)
    return names[place - 1]


def _output(item: SortItem, selected: SelectList) -> str | None:
    """The output column that the item names by its alias, or whose expression it repeats."""
    if isinstance(item.value, NameTerm) and len(item.value.parts) == 1:
        for of in selected.items:
            if of.alias == item.value.parts[0]:
                return of.alias
    if any(isinstance(of.value, StarTerm) for of in selected.items):
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
