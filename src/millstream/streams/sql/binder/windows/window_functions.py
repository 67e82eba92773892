"""Windows bound: those of FROM and those of GROUP BY become one kind of node."""

from __future__ import annotations

from millstream.streams.plan.expressions import Column, is_proctime
from millstream.streams.plan.nodes import Node, WindowRows
from millstream.streams.plan.types import Field
from millstream.streams.plan.windows import Cumulate, Hop, Session, Tumble
from millstream.streams.sql.binder.relations import Relation, as_column, rename_apart
from millstream.streams.sql.binder.scalars import bind_term, window_key
from millstream.streams.sql.binder.scopes import Scope, ScopePart
from millstream.streams.sql.syntax.expressions import CallTerm, IntervalTerm, NameTerm
from millstream.streams.sql.syntax.queries import WindowSource
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["BOUNDS", "MAX_WINDOWS_OF_A_ROW", "group_window", "window_relation"]

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
