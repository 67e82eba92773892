"""Binds OVER: aggregates and positional functions over preceding rows."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Literal

from millstream.streams.functions.registry import AGGREGATES, WINDOW_FUNCTIONS, FunctionSpec
from millstream.streams.learning.scoring import SCORES
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.ordering import Frame, OrderKey, Over, OverCall
from millstream.streams.plan.types import Field, TypeKind
from millstream.streams.sql.binder.aggregate_calls import bind_aggregate
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.binder.relations import as_columns, fresh_name
from millstream.streams.sql.binder.scalars import RANKINGS, bind_term
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.syntax.expressions import (
    CallTerm,
    FrameBound,
    IntervalTerm,
    LiteralTerm,
    OverWindow,
    SortItem,
    Term,
)
from millstream.streams.sql.syntax.script import did_you_mean
from millstream.streams.sql.syntax.terms import identity, over_calls_of

__all__ = ["bind_over"]

_OF_THE_PLACE = (*RANKINGS, "LAG", *SCORES)
"""Functions that no frame changes."""

_AS_BATCH = "Over tables that end, SET 'execution.runtime-mode' = 'batch' looks at whole partitions."

_OF_THE_WHOLE = ("LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST")
"""Functions of rows that are still to come."""


@dataclass(frozen=True)
class _Window:
    """One OVER (...) bound to columns."""

    partition: tuple[str, ...]
    order: tuple[OrderKey, ...]
    frame: Frame
    whole: bool = False


def bind_over(
    terms: tuple[Term, ...], named: dict[str, OverWindow], node: Node, scope: Scope, context: QueryContext
) -> tuple[Node, Scope]:
    """The node with a column for each call with OVER in the terms, and the scope that knows them. Raises SqlError.

    `named` are the windows of the WINDOW clause.
    """
    calls = {identity(call): call for call in over_calls_of(terms)}
    if not calls:
        return node, scope
    windows: dict[tuple[object, _Window], list[tuple[object, CallTerm]]] = {}
    for key, call in calls.items():
        assert call.over is not None
        node, window = _window(_resolve_base(call.over, named, scope), call, node, scope, context)
        group = key if call.name in RANKINGS else None
        windows.setdefault((group, window), []).append((key, call))
    replaced = dict(scope.replaced)
    # A filter turns the ranking right below it into a Top-N, so rankings stand above the rest.
    for (_, window), members in sorted(windows.items(), key=lambda entry: entry[0][0] is not None):
        used_names = set(node.schema.names)
        bound = []
        for key, call in members:
            _check_order(call, window, node, scope, context)
            aggregate = bind_aggregate(replace(call, over=None), scope, spec=_spec(call, scope, context))
            over = OverCall(fresh_name(f"over_{len(replaced)}", used_names), aggregate)
            bound.append(over)
            replaced[key] = Column(over.name, aggregate.type)
        node = Over(node, window.partition, window.order, window.frame, tuple(bound), window.whole)
    return node, replace(scope, replaced=replaced)


def _spec(call: CallTerm, scope: Scope, context: QueryContext) -> FunctionSpec | None:
    """The function of the place, or None for an aggregate."""
    if call.name in _OF_THE_WHOLE and context.streaming:
        message = f"{call.name} needs rows that are still to come."
        remedy = f"A stream knows the rows before: use LAG, ROW_NUMBER or RANK. {_AS_BATCH}"
        raise scope.script.error("SQL_UNSUPPORTED", message, call.span, remedy=remedy)
    if call.name in WINDOW_FUNCTIONS:
        return WINDOW_FUNCTIONS[call.name]
    if call.name in AGGREGATES or scope.script.aggregate(call.name) is not None:
        return None
    hint = did_you_mean(call.name, [*WINDOW_FUNCTIONS, *AGGREGATES])
    message = f"{call.name} cannot stand before OVER."
    raise scope.script.error("SQL_UNKNOWN_FUNCTION", message, call.name_span, remedy=hint or None)


def _resolve_base(over: OverWindow, named: dict[str, OverWindow], scope: Scope) -> OverWindow:
    """The window with what the one of the WINDOW clause says that it is built on."""
    if over.base is None:
        return over
    base = named.get(over.base)
    if base is None:
        remedy = did_you_mean(over.base, list(named)) or "Define it: WINDOW w AS (PARTITION BY ... ORDER BY ...)."
        raise scope.script.error("SQL_SYNTAX", f'There is no window "{over.base}".', over.span, remedy=remedy)
    base = _resolve_base(base, {name: of for name, of in named.items() if name != over.base}, scope)
    if (over.partition and base.partition) or (over.order and base.order):
        message = f'The window "{over.base}" has a PARTITION BY or ORDER BY already.'
        raise scope.script.error("SQL_SYNTAX", message, over.span)
    return OverWindow(
        None,
        over.partition or base.partition,
        over.order or base.order,
        over.rows if over.frame else base.rows,
        over.frame or base.frame,
        over.span,
    )


def _window(over: OverWindow, call: CallTerm, node: Node, scope: Scope, context: QueryContext) -> tuple[Node, _Window]:
    if not over.order and (context.streaming or call.name in (*_OF_THE_PLACE, *_OF_THE_WHOLE)):
        message = f"{call.name} OVER needs an ORDER BY: rows of a stream have no other order."
        raise scope.script.error("SQL_UNSUPPORTED", message, over.span, remedy="Order by a time attribute.")
    place = replace(scope, place="OVER")
    node, partition = as_columns(node, [bind_term(term, place) for term in over.partition], "partition_key")
    node, order = _order(over.order, node, place)
    unframed = call.name in (*_OF_THE_PLACE, *_OF_THE_WHOLE)
    frame = Frame("rows") if unframed else _frame(over, scope, context)
    if context.streaming:
        return node, _Window(partition, order, frame)
    first = node.schema.find(order[0].column) if order else None
    timed = first is not None and first.is_time_attribute and order[0].ascending
    if frame.unit == "range" and over.frame is not None:
        _check_range(over, frame, first, order, scope)
    ahead = call.name in _OF_THE_WHOLE or frame.following != 0 or (frame.preceding or 0) < 0
    return node, _Window(partition, order, frame, whole=ahead or not timed)


def _order(items: tuple[SortItem, ...], node: Node, scope: Scope) -> tuple[Node, tuple[OrderKey, ...]]:
    node, names = as_columns(node, [bind_term(item.value, scope) for item in items], "order_key")
    pairs = zip(names, items, strict=True)
    return node, tuple(OrderKey(name, item.ascending, item.nulls_first) for name, item in pairs)


def _frame(over: OverWindow, scope: Scope, context: QueryContext) -> Frame:
    if over.frame is None:
        return Frame("range")
    first, last = over.frame
    script = scope.script
    if context.streaming and (not last.current or first.following):
        message = "A frame ends with CURRENT ROW: rows that are still to come are not waited for."
        span = last.span if not last.current else first.span
        raise script.error("SQL_UNSUPPORTED", message, span, remedy=_AS_BATCH)
    for bound, is_wrong in ((first, first.following), (last, not last.following)):
        if bound.amount is None and not bound.current and is_wrong:
            message = "A frame begins with UNBOUNDED PRECEDING and ends with UNBOUNDED FOLLOWING, not the other way."
            raise script.error("SQL_SYNTAX", message, bound.span)
    unit: Literal["rows", "range"] = "rows" if over.rows else "range"
    behind = [_reach(bound, unit, scope, counts=not context.streaming) for bound in (first, last)]
    preceding, following = None if behind[0] is None else -behind[0], behind[1]
    if preceding is not None and following is not None and preceding + following < 0:
        raise script.error("SQL_SYNTAX", "The frame ends before it begins.", first.span)
    return Frame(unit, preceding, following)


def _reach(bound: FrameBound, unit: str, scope: Scope, *, counts: bool) -> int | None:
    """How far behind the row a bound is, before it a negative number; None for UNBOUNDED."""
    if bound.current:
        return 0
    if bound.amount is None:
        return None
    amount = _amount(bound, unit, scope, counts=counts)
    return amount if bound.following else -amount


def _amount(bound: FrameBound, unit: str, scope: Scope, *, counts: bool) -> int:
    """With `counts` a range may be one of numbers."""
    match bound.amount:
        case LiteralTerm(value=int(number)) if unit == "rows" or counts:
            return number
        case IntervalTerm(duration=datetime.timedelta() as duration) if unit == "range":
            return duration // datetime.timedelta(milliseconds=1)
    wanted = "ROWS takes a number" if unit == "rows" else "RANGE takes an interval of days to seconds"
    raise scope.script.error("SQL_TYPE", f"{wanted} before PRECEDING.", bound.span)


def _check_range(
    over: OverWindow, frame: Frame, first: Field | None, order: tuple[OrderKey, ...], scope: Scope
) -> None:
    """A range with distances is measured by one column, of numbers or of times as its bounds are."""
    assert over.frame is not None
    for bound in over.frame:
        if bound.current or bound.amount is None:
            continue
        wants_time = isinstance(bound.amount, IntervalTerm)
        fits = first is not None and (
            (first.type.is_timestamp or first.type.kind is TypeKind.DATE) if wants_time else first.type.is_number
        )
        if not fits or len(order) != 1:
            what = "an interval needs a time" if wants_time else "a number needs a number"
            message = f"RANGE is measured by the one column of ORDER BY: {what} there."
            raise scope.script.error("SQL_TYPE", message, bound.span, remedy="ROWS counts rows.")


def _check_order(call: CallTerm, window: _Window, node: Node, scope: Scope, context: QueryContext) -> None:
    """Rankings wait for a filter; others need ascending time, be it an attribute or what is left of one."""
    if call.name in RANKINGS:
        context.rankings.append((call.name, call.span))
        return
    if window.whole:
        return
    first = node.schema.find(window.order[0].column)
    assert first is not None
    if not window.order[0].ascending or not (first.is_time_attribute or first.type.is_timestamp):
        message = f"{call.name} OVER is ordered by ascending time, but {_field_text(first, window)} is not that."
        known = [of.name for of in node.schema.fields if of.is_time_attribute]
        remedy = f"Time attributes here: {', '.join(known)}." if known else None
        assert call.over is not None
        raise scope.script.error("SQL_TIME_ATTRIBUTE", message, call.over.span, remedy=remedy)


def _field_text(field: Field, window: _Window) -> str:
    return f"{field.name} {field.type}{'' if window.order[0].ascending else ' DESC'}"
