"""What a plan gives of finite tables, worked out row by row: slow, plain, and without any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import itemgetter, or_
from typing import Any

from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.aggregates import Aggregate, AggregateCall, Expand, WindowAggregate
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.joins import Join, SetKind, SetOperation
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, Union, Values
from millstream.streams.plan.ordering import OrderKey, Rank, Sort
from millstream.streams.plan.windows import Tumble

__all__ = ["answer"]

Row = tuple[Any, ...]
Tables = Mapping[str, Sequence[Mapping[str, Any]]]


def answer(node: Node, tables: Tables) -> list[Row]:
    """The rows of `node`; `tables` are the rows of each table by column."""
    match node:
        case Scan(table=table, columns=columns):
            return [tuple(row[name] for name in columns) for row in tables[table.name]]
        case Values(rows=rows):
            return [tuple(_value(value, (), ()) for value in row) for row in rows]
        case Project(columns=columns):
            return [
                tuple(_value(value, node.input.schema.names, row) for _, value in columns)
                for row in answer(node.input, tables)
            ]
        case Filter(predicate=predicate):
            names = node.input.schema.names
            return [row for row in answer(node.input, tables) if _value(predicate, names, row) is True]
        case Expand(projections=projections):
            names = node.input.schema.names
            rows = answer(node.input, tables)
            return [tuple(_value(value, names, row) for value in values) for row in rows for values in projections]
        case Union(inputs=inputs):
            return [row for below in inputs for row in answer(below, tables)]
        case SetOperation():
            return _set(node, answer(node.left, tables), answer(node.right, tables))
        case Aggregate() | WindowAggregate():
            return _grouped(node, answer(node.input, tables))
        case Join():
            return _joined(node, answer(node.left, tables), answer(node.right, tables))
        case Rank():
            return _ranked(node, answer(node.input, tables))
        case Sort(limit=limit, offset=offset):
            rows = _sorted(answer(node.input, tables), node.input.schema.names, node.order)
            return rows[offset:] if limit is None else rows[offset : offset + limit]
        case _:
            raise NotImplementedError(type(node).__name__)


def _value(expression: Expression, names: Sequence[str], row: Row) -> Any:
    return evaluator(expression, {name: place for place, name in enumerate(names)})(row)


def _set(node: SetOperation, left: list[Row], right: list[Row]) -> list[Row]:
    """Without ALL, which nothing here asks for."""
    wanted = node.kind is SetKind.INTERSECT
    return [row for row in dict.fromkeys(left) if (row in right) == wanted]


def _grouped(node: Aggregate | WindowAggregate, rows: list[Row]) -> list[Row]:
    if isinstance(node, WindowAggregate):
        return _windows(node, rows)
    names = node.input.schema.names
    groups: dict[Row, list[Row]] = {} if node.keys else {(): []}
    for row in rows:
        groups.setdefault(tuple(_value(key, names, row) for _, key in node.keys), []).append(row)
    return [
        (*key, *(_aggregate(call, names, members) for _, call in node.aggregates)) for key, members in groups.items()
    ]


def _windows(node: WindowAggregate, rows: list[Row]) -> list[Row]:
    """Times are numbers of milliseconds here."""
    assert isinstance(node.window, Tumble)
    place, size_ms = node.input.schema.names.index(node.window.time_column), node.window.size_ms
    windows: dict[int, list[Row]] = {}
    for row in rows:
        windows.setdefault(row[place] // size_ms * size_ms, []).append(row)
    whole = Aggregate(node.input, node.keys, node.aggregates)
    return [
        (*row, start_ms, start_ms + size_ms, start_ms + size_ms - 1)
        for start_ms, members in windows.items()
        for row in _grouped(whole, members)
    ]


_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "COUNT": len,
    "SUM": lambda values: sum(values) if values else None,
    "MIN": lambda values: min(values, default=None),
    "MAX": lambda values: max(values, default=None),
    "AVG": lambda values: sum(values) / len(values) if values else None,
    "BIT_OR": lambda values: reduce(or_, values, 0),
}


def _aggregate(call: AggregateCall, names: Sequence[str], rows: Iterable[Row]) -> Any:
    kept = [row for row in rows if call.filter is None or _value(call.filter, names, row) is True]
    if call.argument is None:
        return len(kept)
    values = [value for row in kept if (value := _value(call.argument, names, row)) is not None]
    if call.function == "PERCENTILE":
        (fraction,) = (_value(one, (), ()) for one in call.more)
        return _percentile(sorted(values), float(fraction)) if values else None
    return _FUNCTIONS[call.function](list(dict.fromkeys(values)) if call.distinct else values)


def _percentile(ordered: list[float], fraction: float) -> float:
    below, rest = divmod(fraction * (len(ordered) - 1), 1)
    pair = ordered[int(below) : int(below) + 2]
    return pair[0] + (pair[-1] - pair[0]) * rest


def _joined(node: Join, left: list[Row], right: list[Row]) -> list[Row]:
    pairs = [(one, two) for one in range(len(left)) for two in range(len(right)) if _fits(node, left[one], right[two])]
    with_partner = {one for one, _ in pairs}
    if node.kind.only_left:
        wanted = not node.kind.keeps_left
        return [row for place, row in enumerate(left) if _stays(node, row, right, place in with_partner, wanted)]
    rows = [left[one] + right[two] for one, two in pairs]
    if node.kind.keeps_left:
        nothing = (None,) * len(node.right.schema.fields)
        rows += [row + nothing for place, row in enumerate(left) if place not in with_partner]
    if node.kind.keeps_right:
        partners = {two for _, two in pairs}
        nothing = (None,) * len(node.left.schema.fields)
        rows += [nothing + row for place, row in enumerate(right) if place not in partners]
    return rows


def _stays(node: Join, row: Row, right: list[Row], has_partner: bool, wanted: bool) -> bool:
    """Whether a left row is among those of a SEMI or ANTI join; NOT IN is never true of what NULL may equal."""
    if not node.null_aware or has_partner:
        return has_partner == wanted
    mine = [row[node.left.schema.names.index(name)] for name, _ in node.keys]
    places = [node.right.schema.names.index(name) for _, name in node.keys]
    unknown = any(
        all(one is None or other[place] is None or one == other[place] for one, place in zip(mine, places, strict=True))
        for other in right
    )
    return not unknown


def _fits(node: Join, left: Row, right: Row) -> bool:
    for mine, other in node.keys:
        one, two = left[node.left.schema.names.index(mine)], right[node.right.schema.names.index(other)]
        if one is None or two is None or one != two:
            return False
    names = (*node.left.schema.names, *node.right.schema.names)
    return node.condition is None or _value(node.condition, names, left + right) is True


def _ranked(node: Rank, rows: list[Row]) -> list[Row]:
    """By ROW_NUMBER, whose order leaves no ties here."""
    names = node.input.schema.names
    places = [names.index(name) for name in node.partition]
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[place] for place in places), []).append(row)
    found = []
    for members in groups.values():
        for number, row in enumerate(_sorted(members, names, node.order), 1):
            if node.first <= number <= node.last:
                found.append(row if node.rank_name is None else (*row, number))
    return found


def _sorted(rows: list[Row], names: Sequence[str], order: Sequence[OrderKey]) -> list[Row]:
    for key in reversed(order):
        place = names.index(key.column)
        nulls = [row for row in rows if row[place] is None]
        others = sorted(
            (row for row in rows if row[place] is not None), key=itemgetter(place), reverse=not key.ascending
        )
        rows = [*nulls, *others] if key.has_nulls_first else [*others, *nulls]
    return rows
