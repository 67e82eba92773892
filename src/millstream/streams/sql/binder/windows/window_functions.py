"""Binds windows of FROM and GROUP BY to one kind of node, with the bounds as columns."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.expressions import Column, is_proctime
from millstream.streams.plan.joins import Correlate, Join, JoinKind, LookupJoin
from millstream.streams.plan.nodes import Filter, Node, Project, Union, WindowRows, with_inputs
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.types import Field
from millstream.streams.plan.windows import Cumulate, Hop, Session, Tumble
from millstream.streams.sql.binder.relations import Relation, add_columns, as_column, fresh_name, project, rename_apart
from millstream.streams.sql.binder.scalars import bind_term, window_key
from millstream.streams.sql.binder.scopes import Scope, ScopePart
from millstream.streams.sql.syntax.expressions import CallTerm, IntervalTerm, NameTerm
from millstream.streams.sql.syntax.queries import WindowSource
from millstream.streams.sql.syntax.script import Script, Span

__all__ = [
    "BOUNDS",
    "MAX_WINDOWS_OF_A_ROW",
    "WindowColumns",
    "group_window",
    "window_columns",
    "window_relation",
    "with_window_time",
]


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


BOUNDS = ("window_start", "window_end", "window_time")

MAX_WINDOWS_OF_A_ROW = 100_000
"""Windows that one row can be in. A HOP of a day each second has 86,400; each of them keeps state."""

_TimeWindow = Tumble | Hop | Cumulate | Session


def window_relation(source: WindowSource, node: Node, qualifier: str | None, script: Script) -> Relation:
    """The rows of a window function over `node`, each once for every window that it is in."""
    scope = Scope(script, node.schema, (qualifier,) if qualifier else ())
    time = _time_attribute(source.time_column, scope)
    node, new = rename_apart(node, BOUNDS)
    sizes = {key: _milliseconds(size, script) for key, size in source.sizes}
    keys = tuple(new[_column(name, scope)] for name in source.partition)
    window = _window(source.function, new[time.name], sizes, source.span, script, keys)
    rows = WindowRows(node, window)
    return Relation(
        rows, (ScopePart(qualifier, tuple((of.name, Column(of.name, of.type)) for of in rows.schema.fields)),)
    )


def _column(name: NameTerm, scope: Scope) -> str:
    bound = bind_term(name, scope)
    if not isinstance(bound, Column):
        raise scope.script.error("SQL_UNSUPPORTED", "PARTITION BY takes columns here.", name.span)
    return bound.name


def group_window(term: CallTerm, node: Node, scope: Scope) -> tuple[Node, _TimeWindow, object]:
    """The window of GROUP BY TUMBLE(...), HOP, SESSION or CUMULATE, and what calls of its bounds are known by.

    The node is given back with a column for the time where that is PROCTIME() itself.
    """
    script = scope.script
    orders = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "CUMULATE": ("STEP", "SIZE"), "SESSION": ("GAP",)}
    order = orders[term.name]
    time, *amounts = term.arguments or (None,)
    intervals = [amount for amount in amounts if isinstance(amount, IntervalTerm)]
    whole = len(intervals) == len(amounts) and len(order) <= len(amounts) <= len(order) + (term.name != "SESSION")
    if not isinstance(time, NameTerm | CallTerm) or not whole:
        named = ", ".join(f"INTERVAL '10' SECOND /* {name.lower()} */" for name in order)
        message = f"{term.name} takes a time attribute and {len(order)} interval{'s' if len(order) > 1 else ''}."
        raise script.error("SQL_TYPE", message, term.span, remedy=f"As in {term.name}(ts, {named}).")
    sizes = {key: _milliseconds(size, script) for key, size in zip((*order, "OFFSET"), intervals, strict=False)}
    clock = bind_term(time, scope)
    if is_proctime(clock):
        node, name = as_column(node, clock, "processing_time")
    else:
        name = _time_attribute(time, scope).name
    return node, _window(term.name, name, sizes, term.span, script), window_key(term, scope)


def _time_attribute(term: NameTerm | CallTerm, scope: Scope) -> Field:
    column = bind_term(term, scope)
    attribute = scope.schema.find(column.name) if isinstance(column, Column) else None
    if attribute is None or not attribute.is_time_attribute:
        known = [known.name for known in scope.schema.fields if known.is_time_attribute]
        names = [known.name for known in scope.schema.fields if known.rowtime]
        remedy = f"Event-time columns here: {', '.join(names)}." if names else None
        if remedy is None and known:
            remedy = f"Processing-time columns here: {', '.join(known)}."
        text = term.parts[-1] if isinstance(term, NameTerm) else scope.script.text[term.span.start : term.span.end]
        message = f'"{text}" has no watermark, which a window needs.'
        if column.type.is_timestamp and remedy is None:
            remedy = "Joins without bounds in time, groupings without a window and ranks take watermarks away."
        raise scope.script.error("SQL_TIME_ATTRIBUTE", message, term.span, remedy=remedy)
    return attribute


def _window(
    function: str, time: str, sizes: dict[str, int], span: Span, script: Script, keys: tuple[str, ...] = ()
) -> _TimeWindow:
    offset = sizes.pop("OFFSET", 0)
    for name, size in sizes.items():
        if size <= 0:
            message = f"A window needs a {name.lower()} of 1 millisecond or more."
            raise script.error("SQL_TYPE", message, span)
    step = sizes.get("SLIDE", sizes.get("STEP"))
    if step is not None and sizes["SIZE"] > step * MAX_WINDOWS_OF_A_ROW:
        message = f"Each row would be in more than {MAX_WINDOWS_OF_A_ROW} windows."
        raise script.error("SQL_TYPE", message, span, remedy="Make the slide or step longer.")
    match function:
        case "TUMBLE":
            return Tumble(time, sizes["SIZE"], offset)
        case "HOP":
            return Hop(time, sizes["SIZE"], sizes["SLIDE"], offset)
        case "CUMULATE":
            if sizes["SIZE"] % sizes["STEP"]:
                message = "The size of CUMULATE is a multiple of its step."
                raise script.error("SQL_TYPE", message, span)
            return Cumulate(time, sizes["SIZE"], sizes["STEP"], offset)
        case _:
            return Session(time, sizes["GAP"], keys)


def _milliseconds(interval: IntervalTerm, script: Script) -> int:
    if interval.duration is None:
        raise script.error("SQL_UNSUPPORTED", "A window of months or years is not supported.", interval.span)
    milliseconds = interval.duration.total_seconds() * 1000
    if milliseconds != int(milliseconds):
        raise script.error("SQL_TYPE", "Windows count whole milliseconds.", interval.span)
    return int(milliseconds)
