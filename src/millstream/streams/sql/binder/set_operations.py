"""Binds UNION, INTERSECT, EXCEPT and VALUES, with common column types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from millstream.streams.functions.casting import common_type
from millstream.streams.plan.aggregates import Aggregate, WindowAggregate
from millstream.streams.plan.expressions import Column, Expression
from millstream.streams.plan.joins import SetKind, SetOperation
from millstream.streams.plan.nodes import Node, Project, Union, Values
from millstream.streams.plan.types import DataType, Field, Schema
from millstream.streams.plan.windows import Attached
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.binder.relations import fresh_name, project
from millstream.streams.sql.binder.scalars import bind_term, convert_type
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.binder.windows.window_functions import window_columns, with_window_time
from millstream.streams.sql.syntax.queries import QueryTree, SetQuery, ValuesQuery
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["bind_set", "bind_values", "distinct"]


def distinct(node: Node) -> Node:
    """Each row once; once per window where the columns are among those of an attached window."""
    columns = [(of.name, Column(of.name, of.type)) for of in node.schema.fields]
    windows = window_columns(node)
    bounds = [(windows.starts, "window_start"), (windows.ends, "window_end"), (windows.times, "window_time")]
    if not windows.starts or not windows.ends:
        return Aggregate(node, tuple(columns), ())
    below, time = with_window_time(node)
    given = {name: bound for names, bound in bounds for name in names}
    attached = Attached(min(windows.starts), min(windows.ends), time)
    used_names = {bound for _, bound in bounds}
    keys = [(fresh_name(name, used_names), column) for name, column in columns if name not in given]
    grouped = WindowAggregate(below, attached, tuple(keys), ())
    names = {column.name: name for name, column in keys}
    shown = ((name, replace(column, name=given.get(name) or names[name])) for name, column in columns)
    return project(grouped, shown)


def bind_values(query: ValuesQuery, context: QueryContext) -> Values:
    """Rows of the script; their columns are EXPR$0, EXPR$1 and so on. Raises SqlError."""
    script = context.script
    scope = Scope(script, Schema(()), place="VALUES")
    width = len(query.rows[0])
    for row in query.rows:
        if len(row) != width:
            message = f"The first row has {width} columns, this one {len(row)}."
            raise script.error("SQL_SYNTAX", message, row[0].span.to(row[-1].span))
    bound = [[bind_term(term, scope) for term in row] for row in query.rows]
    types = [_common([row[place].type for row in bound], query.span, script, f"EXPR${place}") for place in range(width)]
    rows = tuple(tuple(convert_type(value, types[place]) for place, value in enumerate(row)) for row in bound)
    return Values(Schema(tuple(Field(f"EXPR${place}", of) for place, of in enumerate(types))), rows)


def bind_set(query: SetQuery, context: QueryContext) -> Node:
    """The node of a set operation; the names are those of its first query. Raises SqlError."""
    members = (
        list(_members(query, query.kind)) if query.kind == "UNION" and query.keep_all else [query.left, query.right]
    )
    inputs = _align_columns([(member, context.bind(member, context)) for member in members], query, context.script)
    if query.kind == "UNION":
        union = Union(tuple(inputs))
        return union if query.keep_all else distinct(union)
    return SetOperation(inputs[0], inputs[1], SetKind[query.kind], query.keep_all)


def _members(query: QueryTree, kind: str) -> Iterator[QueryTree]:
    """The queries that UNION ALL unites, also those of a UNION ALL inside."""
    if isinstance(query, SetQuery) and query.kind == kind and query.keep_all:
        yield from _members(query.left, kind)
        yield from _members(query.right, kind)
    else:
        yield query


def _align_columns(members: Sequence[tuple[QueryTree, Node]], query: SetQuery, script: Script) -> list[Node]:
    """The queries with the same columns in the same types."""
    names = members[0][1].schema.names
    for member, node in members[1:]:
        if len(node.schema.names) != len(names):
            counts = f"the first has {len(names)}, this one {len(node.schema.names)}"
            message = f"{query.kind} takes queries of the same columns: {counts}."
            raise script.error("SQL_TYPE", message, member.span)
    types = [
        _common([node.schema.fields[place].type for _, node in members], query.span, script, names[place])
        for place in range(len(names))
    ]
    aligned: list[Node] = []
    for _, node in members:
        columns: list[tuple[str, Expression]] = []
        for name, wanted, field in zip(names, types, node.schema.fields, strict=True):
            columns.append((name, convert_type(Column(field.name, field.type), wanted)))
        same = tuple((of.name, Column(of.name, of.type)) for of in node.schema.fields) == tuple(columns)
        aligned.append(node if same and isinstance(node, Project) else project(node, columns))
    return aligned


def _common(types: Sequence[DataType], span: Span, script: Script, name: str) -> DataType:
    try:
        wanted = common_type(types)
    except TypeError:
        shown = ", ".join(dict.fromkeys(str(of) for of in types))
        message = f'The rows have no common type for "{name}": {shown}.'
        raise script.error("SQL_TYPE", message, span, remedy="Use CAST.") from None
    return wanted.as_nullable(any(of.nullable for of in types))
