"""Binds Top-N: ROW_NUMBER(), RANK() or DENSE_RANK() OVER ... of a sub-query, limited by a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal as OneOf

from millstream.streams.plan.expressions import Call, Column, Expression, Literal, columns_of
from millstream.streams.plan.nodes import Filter, Node, Project, inputs_of
from millstream.streams.plan.ordering import Over, Rank
from millstream.streams.sql.binder.relations import rename_columns
from millstream.streams.sql.binder.windows.window_functions import window_columns

__all__ = ["endless_ranking", "filter_ranking"]

_RANKINGS: dict[str, OneOf["ROW_NUMBER", "RANK", "DENSE_RANK"]] = {
    "ROW_NUMBER": "ROW_NUMBER",
    "RANK": "RANK",
    "DENSE_RANK": "DENSE_RANK",
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def filter_ranking(node: Node, conditions: Sequence[Expression]) -> tuple[Node, list[Expression]]:
    """The node with a Top-N in place of the ranking whose places the conditions bound, and the other conditions."""
    match node:
        case Project():
            names = {name: value.name for name, value in node.columns if isinstance(value, Column)}
            places = {number: of for number, of in enumerate(conditions) if set(columns_of(of)) <= set(names)}
            lowered = {rename_columns(of, names): number for number, of in places.items()}
            below, rest = filter_ranking(node.input, list(lowered))
            if below is node.input:
                return node, list(conditions)
            kept = {lowered[of] for of in rest}
            others = [of for number, of in enumerate(conditions) if number not in places or number in kept]
            return replace(node, input=below), others
        case Filter():
            below, rest = filter_ranking(node.input, conditions)
            return (node, list(conditions)) if below is node.input else (replace(node, input=below), rest)
        case Over():
            return _bound_rank(node, conditions)
        case _:
            return node, list(conditions)


def _bound_rank(node: Over, conditions: Sequence[Expression]) -> tuple[Node, list[Expression]]:
    if len(node.calls) != 1:
        return node, list(conditions)
    (over,) = node.calls
    function = _RANKINGS.get(over.call.function)
    if function is None:
        return node, list(conditions)
    found = {number: bounds for number, of in enumerate(conditions) if (bounds := _places(of, over.name)) is not None}
    first = max((bounds[0] for bounds in found.values() if bounds[0] is not None), default=1)
    last = min((bounds[1] for bounds in found.values() if bounds[1] is not None), default=None)
    if last is None or last < 1 or first > last:
        return node, list(conditions)
    windows = window_columns(node.input)
    ends = [name for name in node.partition if name in windows.ends]
    windowed = ends and any(name in windows.starts for name in node.partition)
    rank = Rank(
        node.input,
        node.partition,
        node.order,
        last,
        max(1, first),
        function,
        over.name,
        ends[0] if windowed else None,
    )
    return rank, [of for number, of in enumerate(conditions) if number not in found]


def _places(condition: Expression, name: str) -> tuple[int | None, int | None] | None:
    """The least and the greatest place that a comparison of the column with numbers allows."""
    if not isinstance(condition, Call):
        return None
    arguments = condition.arguments
    if condition.function == "BETWEEN" and _is_column(arguments[0], name):
        low, high = _number(arguments[1]), _number(arguments[2])
        return None if low is None or high is None else (low, high)
    operator = condition.function
    if operator not in _TURNED:
        return None
    if _is_column(arguments[1], name):
        arguments, operator = (arguments[1], arguments[0]), _TURNED[operator]
    number = _number(arguments[1])
    if number is None or not _is_column(arguments[0], name):
        return None
    return {
        "=": (number, number),
        "<=": (None, number),
        "<": (None, number - 1),
        ">=": (number, None),
        ">": (number + 1, None),
    }[operator]


def _is_column(value: Expression, name: str) -> bool:
    return isinstance(value, Column) and value.name == name


def _number(value: Expression) -> int | None:
    number = value.value if isinstance(value, Literal) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def endless_ranking(node: Node) -> Over | None:
    """A ranking by something else than ascending time that no filter bounds: its places would change for ever."""
    if isinstance(node, Over) and not node.whole and any(over.call.function in _RANKINGS for over in node.calls):
        first = node.input.schema.find(node.order[0].column) if node.order else None
        if first is None or not first.is_time_attribute or not node.order[0].ascending:
            return node
    return next((found for below in inputs_of(node) if (found := endless_ranking(below)) is not None), None)
