"""Binding of SELECT: sources, filters, windows and projections become nodes of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from millstream.streams.functions.registry import AGGREGATES
from millstream.streams.plan.expressions import Column, Expression, columns_of, is_proctime
from millstream.streams.plan.nodes import (
    AggregateCall,
    Filter,
    Node,
    Project,
    Tumble,
    WindowAggregate,
    WindowRows,
)
from millstream.streams.sql.names import split_path
from millstream.streams.sql.scalars import WINDOW_CALLS, Scope, bind_condition, bind_term, identity
from millstream.streams.sql.script import Script, Span
from millstream.streams.sql.syntax import (
    CallTerm,
    IntervalTerm,
    NameTerm,
    Select,
    SelectItem,
    Source,
    StarTerm,
    SubquerySource,
    TableSource,
    Term,
    TumbleSource,
)

__all__ = ["TableLookup", "bind_select"]

TableLookup = Callable[[str, Span], Node]
"""The rows of a table or view by name; raises SQL_UNKNOWN_TABLE at the span."""

_GROUP_ONLY = "Aggregates need GROUP BY with a TUMBLE window: unbounded aggregates are not supported."
_BOUNDS = ("window_start", "window_end", "window_time")
_FIELD_OF_CALL = {"TUMBLE_START": "window_start", "TUMBLE_END": "window_end", "TUMBLE_ROWTIME": "window_time"}


@dataclass(frozen=True)
class _From:
    """A bound FROM: the rows, what they may be called, and the window of a TVF that stands on them."""

    node: Node
    qualifiers: tuple[str, ...]
    window: Tumble | None = None


def bind_select(select: Select, script: Script, lookup: TableLookup) -> Node:
    """The plan of a query. Raises SqlError."""
    if select.source is None:
        raise script.error("SQL_UNSUPPORTED", "A SELECT without FROM is not supported.", select.span)
    source = _bind_source(select.source, script, lookup)
    aggregates = list(_aggregates_of(select))
    if select.groups or aggregates:
        return _bind_grouped(select, source, script)
    if select.having is not None:
        raise script.error("SQL_UNSUPPORTED", "HAVING needs GROUP BY.", select.having.span)
    node = source.node if source.window is None else WindowRows(source.node, source.window)
    scope = Scope(script, node.schema, source.qualifiers, place="WHERE")
    if select.where is not None:
        node = Filter(node, bind_condition(select.where, scope))
    return _project(select.items, replace(scope, place="SELECT"), node)


def _bind_source(source: Source, script: Script, lookup: TableLookup) -> _From:
    match source:
        case TableSource():
            return _From(lookup(source.name, source.span), (source.alias or split_path(source.name)[-1],))
        case SubquerySource():
            return _From(bind_select(source.query, script, lookup), (source.alias,) if source.alias else ())
        case TumbleSource():
            node = lookup(source.table.name, source.table.span)
            window = _tumble(source.time_column, source.size, source.offset, node, script)
            for bound in _BOUNDS:
                if node.schema.find(bound) is not None:
                    raise script.error("SQL_UNSUPPORTED", f"The table has a column {bound} of its own.", source.span)
            return _From(node, (source.alias or split_path(source.table.name)[-1],), window)


def _tumble(time: NameTerm, size: IntervalTerm, offset: IntervalTerm | None, node: Node, script: Script) -> Tumble:
    column = bind_term(time, Scope(script, node.schema))
    attribute = node.schema.find(column.name) if isinstance(column, Column) else None
    if attribute is None or not attribute.rowtime:
        known = [known.name for known in node.schema.fields if known.rowtime]
        remedy = f"Event-time columns here: {', '.join(known)}." if known else None
        message = f'"{time.parts[-1]}" has no watermark, which a window needs.'
        raise script.error("SQL_TIME_ATTRIBUTE", message, time.span, remedy=remedy)
    size_ms = _milliseconds(size, script)
    if size_ms <= 0:
        raise script.error("SQL_TYPE", "A window needs a size of 1 millisecond or more.", size.span)
    return Tumble(attribute.name, size_ms, 0 if offset is None else _milliseconds(offset, script))


def _milliseconds(interval: IntervalTerm, script: Script) -> int:
    if interval.duration is None:
        raise script.error("SQL_UNSUPPORTED", "A window of months or years is not supported.", interval.span)
    milliseconds = interval.duration.total_seconds() * 1000
    if milliseconds != int(milliseconds):
        raise script.error("SQL_TYPE", "Windows count whole milliseconds.", interval.span)
    return int(milliseconds)


def _bind_grouped(select: Select, source: _From, script: Script) -> Node:
    rows = source.node if source.window is None else WindowRows(source.node, source.window)
    scope = Scope(script, rows.schema, source.qualifiers, place="WHERE")
    window, keys = _window_and_keys(select, source, scope)
    condition = None if select.where is None else bind_condition(select.where, scope)
    replaced: dict[object, Expression] = {}
    bound_keys: list[tuple[str, Expression]] = []
    taken = set(_BOUNDS)
    for number, key in enumerate(keys):
        value = bind_term(key, replace(scope, place="GROUP BY"))
        name = next((known for known, bound in bound_keys if bound == value), "")
        if not name:
            name = _fresh(value.name if isinstance(value, Column) else f"key_{number}", taken)
            bound_keys.append((name, value))
        replaced[identity(key)] = Column(name, value.type)
        if isinstance(value, Column):
            # The same column under its qualified and its plain name.
            for parts in ((value.name,), *((qualifier, value.name) for qualifier in source.qualifiers)):
                replaced[identity(NameTerm(parts, key.span))] = Column(name, value.type)
    calls: list[tuple[str, AggregateCall]] = []
    for term in _aggregates_of(select):
        if identity(term) not in replaced:
            name = _fresh(f"aggregate_{len(calls)}", taken)
            call = _aggregate(term, scope)
            calls.append((name, call))
            replaced[identity(term)] = Column(name, call.type)
    read = _columns_read(condition, bound_keys, calls)
    node = rows if source.window is not None and read & set(_BOUNDS) else source.node
    if condition is not None:
        node = Filter(node, condition)
    grouped = WindowAggregate(node, window, tuple(bound_keys), tuple(calls))
    _replace_bounds(replaced, grouped, select, source)
    # Names are looked up below the grouping, so that an ungrouped column is told from an unknown one.
    above = Scope(script, rows.schema, source.qualifiers, replaced, in_group=True, place="HAVING")
    result: Node = grouped
    if select.having is not None:
        result = Filter(result, bind_condition(select.having, above))
    return _project(select.items, replace(above, place="SELECT"), result)


def _fresh(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken already."""
    found = next(f"{name}{suffix}" for suffix in ("", *range(len(taken) + 1)) if f"{name}{suffix}" not in taken)
    taken.add(found)
    return found


def _columns_read(
    condition: Expression | None, keys: list[tuple[str, Expression]], calls: list[tuple[str, AggregateCall]]
) -> set[str]:
    """The names of all columns below a grouping that it needs."""
    parts = [condition, *(key for _, key in keys)]
    for _, call in calls:
        parts += [call.argument, call.filter]
    return {name for part in parts if part is not None for name in columns_of(part)}


def _window_and_keys(select: Select, source: _From, scope: Scope) -> tuple[Tumble, list[Term]]:
    """The one window that is grouped by, and the other keys."""
    script, window = scope.script, None
    keys: list[Term] = []
    bounds: set[str] = set()
    for term in select.groups:
        if isinstance(term, CallTerm) and term.name in WINDOW_CALLS:
            if term.name != "TUMBLE":
                raise script.error(
                    "SQL_UNSUPPORTED", f"{term.name} windows are not supported.", term.span, remedy="Use TUMBLE."
                )
            if window is not None:
                raise script.error("SQL_UNSUPPORTED", "One window can be grouped by.", term.span)
            window = _group_window(term, source.node, script)
        elif source.window is not None and isinstance(term, NameTerm) and term.parts[-1] in _BOUNDS:
            bounds.add(term.parts[-1])
        else:
            keys.append(term)
    if source.window is not None:
        if window is not None or not {"window_start", "window_end"} <= bounds:
            where = select.groups[0].span if select.groups else select.span
            message = "A window table function is grouped by its window_start and window_end."
            raise script.error("SQL_UNSUPPORTED", message, where, remedy="Write GROUP BY window_start, window_end, ...")
        window = source.window
    if window is None:
        where = select.groups[0].span if select.groups else next(_aggregates_of(select)).span
        raise script.error("SQL_UNSUPPORTED", _GROUP_ONLY, where)
    return window, keys


def _group_window(term: CallTerm, node: Node, script: Script) -> Tumble:
    match term.arguments:
        case (NameTerm() as time, IntervalTerm() as size):
            return _tumble(time, size, None, node, script)
        case (NameTerm() as time, IntervalTerm() as size, IntervalTerm() as offset):
            return _tumble(time, size, offset, node, script)
    message = "TUMBLE takes an event-time column and an interval."
    raise script.error("SQL_TYPE", message, term.span, remedy="As in TUMBLE(ts, INTERVAL '10' SECOND).")


def _replace_bounds(
    replaced: dict[object, Expression], grouped: WindowAggregate, select: Select, source: _From
) -> None:
    """window_start and its kin, or TUMBLE_START(...) and its kin with the arguments of the grouping."""
    bounds = {field.name: Column(field.name, field.type) for field in grouped.schema.fields[-3:]}
    nowhere = Span(0, 0)
    if source.window is not None:
        for name, column in bounds.items():
            for parts in ((name,), *((qualifier, name) for qualifier in source.qualifiers)):
                replaced[identity(NameTerm(parts, nowhere))] = column
        return
    for term in select.groups:
        if isinstance(term, CallTerm) and term.name == "TUMBLE":
            for call, name in _FIELD_OF_CALL.items():
                replaced[identity(replace(term, name=call))] = bounds[name]


def _aggregate(term: CallTerm, scope: Scope) -> AggregateCall:
    spec = AGGREGATES[term.name]
    script = scope.script
    inside = replace(scope, place="an aggregate")
    condition = None if term.filter is None else bind_condition(term.filter, inside)
    if term.distinct:
        raise script.error("SQL_UNSUPPORTED", f"{term.name}(DISTINCT ...) is not supported.", term.span)
    if term.star:
        if term.name != "COUNT":
            raise script.error("SQL_SYNTAX", f"{term.name}(*) is not possible; only COUNT(*).", term.span)
        return AggregateCall("COUNT", None, spec.type_rule(()), filter=condition)
    if len(term.arguments) != 1:
        message = f"{term.name} takes one argument, as in {spec.example}."
        raise script.error("SQL_UNKNOWN_FUNCTION", message, term.span)
    argument = bind_term(term.arguments[0], inside)
    try:
        result = spec.type_rule((argument.type,))
    except TypeError as error:
        raise script.error("SQL_TYPE", f"{term.name} wants {error}, not {argument.type}.", term.span) from None
    return AggregateCall(term.name, argument, result, filter=condition)


def _aggregates_of(select: Select) -> Iterator[CallTerm]:
    for item in select.items:
        yield from _find_aggregates(item.value)
    if select.having is not None:
        yield from _find_aggregates(select.having)


def _find_aggregates(term: object) -> Iterator[CallTerm]:
    if isinstance(term, CallTerm) and term.name in AGGREGATES:
        yield term
    elif isinstance(term, tuple):
        for part in term:
            yield from _find_aggregates(part)
    elif hasattr(term, "__dataclass_fields__") and not isinstance(term, Span):
        for name in term.__dataclass_fields__:
            yield from _find_aggregates(getattr(term, name))


def _project(items: tuple[SelectItem, ...], scope: Scope, node: Node) -> Node:
    columns: list[tuple[str, Expression]] = []
    used: set[str] = set()
    for number, item in enumerate(items):
        for name, value in _item_columns(item, number, scope):
            if name in used and item.alias is not None:
                message = f'Two columns are called "{name}".'
                raise scope.script.error("SQL_SYNTAX", message, item.value.span, remedy="Give one another alias.")
            columns.append((_fresh(name, used), value))
    rowtime = frozenset(
        name
        for name, value in columns
        if isinstance(value, Column) and (field := node.schema.find(value.name)) is not None and field.rowtime
    )
    proctime = frozenset(name for name, value in columns if _is_clock(value, node))
    return Project(node, tuple(columns), rowtime, proctime)


def _is_clock(value: Expression, node: Node) -> bool:
    field = node.schema.find(value.name) if isinstance(value, Column) else None
    return is_proctime(value) or (field is not None and field.proctime)


def _check_star(term: StarTerm, scope: Scope) -> None:
    if not term.qualifier or term.qualifier in {(qualifier,) for qualifier in scope.qualifiers}:
        return
    name = ".".join(term.qualifier)
    if scope.schema.find(term.qualifier[0]) is not None:
        message = f"{name}.* for the fields of a ROW is not supported."
        raise scope.script.error("SQL_UNSUPPORTED", message, term.span, remedy="Name the fields.")
    known = f"Here is {', '.join(scope.qualifiers)}." if scope.qualifiers else "Give the sub-query an alias."
    message = f'There is no table or alias "{name}" in FROM.'
    raise scope.script.error("SQL_UNKNOWN_TABLE", message, term.span, remedy=known)


def _item_columns(item: SelectItem, number: int, scope: Scope) -> Iterator[tuple[str, Expression]]:
    term = item.value
    if isinstance(term, StarTerm):
        if scope.in_group:
            raise scope.script.error("SQL_SYNTAX", "SELECT * is not possible with GROUP BY.", term.span)
        _check_star(term, scope)
        for field in scope.schema.fields:
            yield field.name, Column(field.name, field.type)
        return
    value = bind_term(term, scope)
    if item.alias is not None:
        yield item.alias, value
    elif isinstance(term, NameTerm):
        yield term.parts[-1], value
    elif isinstance(value, Column) and value.name in _BOUNDS:
        yield value.name, value
    else:
        yield f"EXPR${number}", value
