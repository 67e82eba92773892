"""Which columns of a node are the bounds of a window that was attached to its rows further below."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.joins import Correlate, Join, JoinKind, LookupJoin
from millstream.streams.plan.nodes import Filter, Node, Project, Union, WindowRows, with_inputs
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.sql.binder.relations import add_columns, fresh_name, project

__all__ = ["WindowColumns", "window_columns", "with_window_time"]


@dataclass(frozen=True)
class WindowColumns:
    """The columns that carry each bound of one window; a bound may be there under several names or none."""

    starts: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    times: frozenset[str] = frozenset()


def window_columns(node: Node) -> WindowColumns:
    """The columns of the bounds among the node's columns."""
    match node:
        case WindowRows() | WindowAggregate():
            return WindowColumns(frozenset({"window_start"}), frozenset({"window_end"}), frozenset({"window_time"}))
        case Project(columns=columns):
            below = window_columns(node.input)
            pairs = [(name, value.name) for name, value in columns if isinstance(value, Column)]
            kept = [
                frozenset(name for name, of in pairs if of in bounds)
                for bounds in (below.starts, below.ends, below.times)
            ]
            return WindowColumns(*kept)
        case Filter() | Sort() | Over() | Rank() | LookupJoin() | Correlate():
            return window_columns(node.input)
        case Union(inputs=inputs):
            found = [window_columns(below) for below in inputs]
            return WindowColumns(
                frozenset.intersection(*(below.starts for below in found)),
                frozenset.intersection(*(below.ends for below in found)),
                frozenset.intersection(*(below.times for below in found)),
            )
        case Join(kind=kind, left=left, right=right, window_ends=ends):
            if ends is None and not kind.only_left:
                return WindowColumns()
            return window_columns(right if kind is JoinKind.RIGHT else left)
        case _:
            return WindowColumns()


def with_window_time(node: Node) -> tuple[Node, str]:
    """The node, which has a window's columns, with the window's time among its columns, and the name of that one."""
    known = sorted(window_columns(node).times)
    if known:
        return node, known[0]
    match node:
        case Project():
            below, name = with_window_time(node.input)
            field = below.schema.find(name)
            assert field is not None
            found = fresh_name("window_time", set(node.schema.names))
            return project(below, (*node.columns, (found, Column(name, field.type)))), found
        case Filter() | Sort() | Over() | Rank() | LookupJoin() | Correlate():
            below, name = _apart(*with_window_time(node.input), taken=set(node.schema.names))
            return with_inputs(node, (below,)), name
        case Union(inputs=inputs):
            found = fresh_name("window_time", {name for below in inputs for name in below.schema.names})
            return Union(
                tuple(_select_named(*with_window_time(below), node.schema.names, found) for below in inputs)
            ), found
        case Join(kind=JoinKind.RIGHT, left=left, right=right):
            below, name = _apart(*with_window_time(right), taken=set(node.schema.names))
            return with_inputs(node, (left, below)), name
        case Join(left=left, right=right):
            below, name = _apart(*with_window_time(left), taken=set(node.schema.names))
            return with_inputs(node, (below, right)), name
        case _:
            raise ValueError(f"{type(node).__name__} has no window")


def _select_named(node: Node, time: str, names: tuple[str, ...], found: str) -> Node:
    """Only the columns of `names` and the window's time, which is called `found`."""
    fields = {of.name: Column(of.name, of.type) for of in node.schema.fields}
    return project(node, (*((name, fields[name]) for name in names), (found, fields[time])))


def _apart(node: Node, name: str, *, taken: set[str]) -> tuple[Node, str]:
    """The window's time under a name that the node above does not use for another column."""
    if name not in taken:
        return node, name
    field = node.schema.find(name)
    assert field is not None
    found = fresh_name(name, {*taken, *node.schema.names})
    return add_columns(node, [(found, Column(name, field.type))]), found
