"""Binds join conditions: keys, time bounds, windows, and conditions moved below the join."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.streams.functions.casting import common_type
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import Call, Column, Expression, Literal, columns_of, conjunction, conjuncts_of
from millstream.streams.plan.joins import Correlate, IntervalBounds, Join, JoinKind, LookupJoin
from millstream.streams.plan.nodes import Filter, Node, Project
from millstream.streams.plan.types import BOOLEAN, DataType, TypeKind
from millstream.streams.sql.binder.ranking import filter_ranking
from millstream.streams.sql.binder.relations import as_column, project, rename_apart, rename_columns
from millstream.streams.sql.binder.scalars import convert_type
from millstream.streams.sql.binder.windows.window_functions import window_columns, with_window_time

__all__ = ["TimeBounds", "bounds_among", "equal_pair", "filter_rows", "join_nodes", "split_keys", "times_of"]


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class _Time:
    """A column that moves with time: a time attribute, or a window's end, which is 1 ms behind the window's time."""

    column: str
    proctime: bool
    is_window_end: bool = False


@dataclass(frozen=True)
class TimeBounds:
    """`left` less `right` is from `lower_ms` to `upper_ms`. A window's end stands for the window's time."""

    left: _Time
    right: _Time
    lower_ms: int
    upper_ms: int


@dataclass(frozen=True)
class _Limit:
    """`left` less `right` is at least (`lower`) or at most (`upper`) so many milliseconds."""

    left: _Time
    right: _Time
    lower: int | None
    upper: int | None


_Sides = tuple[Mapping[str, _Time], Mapping[str, _Time]]


def times_of(node: Node, *, with_window_ends: bool) -> dict[str, _Time]:
    """The time attributes of a node by name, with the ends of its windows if they are wanted."""
    times = {of.name: _Time(of.name, of.proctime) for of in node.schema.fields if of.is_time_attribute}
    if with_window_ends:
        windows = window_columns(node)
        clocked = any(times[name].proctime for name in windows.times if name in times)
        times |= {name: _Time(name, clocked, is_window_end=True) for name in windows.ends if name not in times}
    return times


def bounds_among(conjuncts: list[Expression], sides: _Sides) -> tuple[TimeBounds | None, list[Expression]]:
    """The bounds that the conditions set between two times, and the conditions that are left.

    There are none unless both directions are bounded: then all conditions are left.
    """
    limits = {number: found for number, of in enumerate(conjuncts) if (found := list(_limits(of, sides)))}
    for left, right in dict.fromkeys((found[0].left, found[0].right) for found in limits.values()):
        used = {number: found for number, found in limits.items() if (found[0].left, found[0].right) == (left, right)}
        lowers = [limit.lower for found in used.values() for limit in found if limit.lower is not None]
        uppers = [limit.upper for found in used.values() for limit in found if limit.upper is not None]
        if lowers and uppers:
            rest = [of for number, of in enumerate(conjuncts) if number not in used]
            moved = right.is_window_end - left.is_window_end
            return TimeBounds(left, right, max(lowers) + moved, min(uppers) + moved), rest
    return None, conjuncts


def _limits(condition: Expression, sides: _Sides) -> Iterator[_Limit]:
    """One or two limits, all between the same two columns; nothing for other conditions."""
    if not isinstance(condition, Call):
        return
    if condition.function == "BETWEEN":
        value, low, high = condition.arguments
        found = [_limit(">=", value, low, sides), _limit("<=", value, high, sides)]
    elif condition.function in _TURNED:
        found = [_limit(condition.function, condition.arguments[0], condition.arguments[1], sides)]
    else:
        return
    known = [limit for limit in found if limit is not None]
    if len(known) == len(found) and len({(limit.left, limit.right) for limit in known}) == 1:
        yield from known


def _limit(operator: str, first: Expression, second: Expression, sides: _Sides) -> _Limit | None:
    left, right = sides
    one, two = _shift_of(first), _shift_of(second)
    if one is None or two is None:
        return None
    if one[0] not in left:
        one, two, operator = two, one, _TURNED[operator]
    ours, theirs = left.get(one[0]), right.get(two[0])
    if ours is None or theirs is None or ours.proctime != theirs.proctime:
        return None
    distance = two[1] - one[1]
    lower = {">": distance + 1, ">=": distance, "=": distance}.get(operator)
    upper = {"<": distance - 1, "<=": distance, "=": distance}.get(operator)
    return _Limit(ours, theirs, lower, upper)


def _shift_of(value: Expression) -> tuple[str, int] | None:
    """A column and the milliseconds that are added to it; None for anything else."""
    if isinstance(value, Column):
        return value.name, 0
    if not isinstance(value, Call) or value.function not in ("+", "-"):
        return None
    inside, amount = _shift_of(value.arguments[0]), value.arguments[1]
    if inside is None or not isinstance(amount, Literal) or not isinstance(amount.value, datetime.timedelta):
        return None
    moved = amount.value // datetime.timedelta(milliseconds=1)
    if datetime.timedelta(milliseconds=moved) != amount.value:
        return None
    return inside[0], inside[1] + (moved if value.function == "+" else -moved)


def join_nodes(
    left: Node,
    right: Node,
    kind: JoinKind,
    conditions: Iterable[Expression],
    *,
    state_ttl_ms: tuple[int | None, int | None] | None = None,
) -> Join:
    """The join of two inputs without a common name; what concerns one side alone is pushed below where it may be."""
    ours, theirs = set(left.schema.names), set(right.schema.names)
    pushed_left: list[Expression] = []
    pushed_right: list[Expression] = []
    both: list[Expression] = []
    for condition in conditions:
        read = set(columns_of(condition))
        if read <= ours and kind in (JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI):
            pushed_left.append(condition)
        elif read <= theirs and kind not in (JoinKind.RIGHT, JoinKind.FULL):
            pushed_right.append(condition)
        else:
            both.append(condition)
    left, right = filter_rows(left, pushed_left), filter_rows(right, pushed_right)
    left, right, keys, rest = split_keys(left, right, both)
    join = Join(left, right, kind, keys, state_ttl_ms=state_ttl_ms)
    return _with_times(join, both, rest)


def split_keys(
    left: Node, right: Node, conditions: list[Expression]
) -> tuple[Node, Node, tuple[tuple[str, str], ...], list[Expression]]:
    """Both inputs with a column for each side of each equation between them, these pairs, and the other conditions."""
    keys: dict[tuple[str, str], None] = {}
    rest: list[Expression] = []
    for condition in conditions:
        pair = equal_pair(condition, left, right)
        if pair is None:
            rest.append(condition)
            continue
        left, mine = as_column(left, pair[0], "left_key", right.schema.names)
        right, other = as_column(right, pair[1], "right_key", left.schema.names)
        keys[mine, other] = None
    return left, right, tuple(keys), rest


def equal_pair(condition: Expression, left: Node, right: Node) -> tuple[Expression, Expression] | None:
    """Both sides of an equation, the left input's first, in one type; None if the condition is something else."""
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    first, second = condition.arguments
    ours, theirs = set(left.schema.names), set(right.schema.names)
    if set(columns_of(first)) <= theirs and set(columns_of(second)) <= ours:
        first, second = second, first
    read = set(columns_of(first)), set(columns_of(second))
    if not read[0] or not read[1] or not read[0] <= ours or not read[1] <= theirs:
        return None
    wanted = common_type((first.type, second.type))
    return convert_type(first, wanted), convert_type(second, wanted)


def _with_times(join: Join, conditions: list[Expression], rest: list[Expression]) -> Join:
    """The join as a window join or an interval join if it is one; `rest` are the conditions that are no keys.

    Rows that change are never final, so a join of them is neither.
    """
    if any(changelog_of(below) is ChangelogMode.RETRACT for below in (join.left, join.right)):
        return replace(join, condition=conjunction(rest))
    ours, theirs = window_columns(join.left), window_columns(join.right)
    keys = set(join.keys)
    starts = any((start, other) in keys for start in ours.starts for other in theirs.starts)
    ends = next(((end, other) for end in ours.ends for other in theirs.ends if (end, other) in keys), None)
    if starts and ends is not None:
        return replace(join, condition=conjunction(rest), window_ends=ends)
    inner = join.kind is JoinKind.INNER
    sides = times_of(join.left, with_window_ends=inner), times_of(join.right, with_window_ends=inner)
    equal = [condition for condition in conditions if condition not in rest]
    found, left_over = bounds_among([*rest, *equal], sides)
    condition = conjunction([condition for condition in rest if condition in left_over])
    if found is None:
        return replace(join, condition=condition)
    left, mine, right, other = join.left, found.left.column, join.right, found.right.column
    if found.left.is_window_end:
        left, mine = _with_time_apart(left, right)
    if found.right.is_window_end:
        right, other = _with_time_apart(right, left)
    bounds = IntervalBounds(mine, other, found.lower_ms, found.upper_ms)
    return replace(join, left=left, right=right, condition=condition, bounds=bounds)


def _with_time_apart(node: Node, other: Node) -> tuple[Node, str]:
    """The node with its window's time under a name that the other input does not use."""
    timed, name = with_window_time(node)
    apart, new = rename_apart(timed, other.schema.names)
    return apart, new[name]


def filter_rows(node: Node, conditions: Sequence[Expression]) -> Node:
    """The rows that fit the conditions: below joins where they concern one side, a Top-N where they bound places."""
    if not conditions:
        return node
    node, left_over = filter_ranking(node, conditions)
    if not left_over:
        return node
    if isinstance(node, Project) and _stands_on_join(node):
        names = {name: value.name for name, value in node.columns if isinstance(value, Column)}
        if {name for condition in left_over for name in columns_of(condition)} <= set(names):
            return replace(node, input=filter_rows(node.input, [rename_columns(of, names) for of in left_over]))
    if isinstance(node, Join):
        return _filtered_join(node, left_over)
    if isinstance(node, LookupJoin | Correlate):
        known = set(node.input.schema.names)
        below = [condition for condition in left_over if set(columns_of(condition)) <= known]
        above = [condition for condition in left_over if condition not in below]
        return _above(replace(node, input=filter_rows(node.input, below)), above)
    return _above(node, left_over)


def _stands_on_join(node: Project) -> bool:
    below = node.input
    return isinstance(below, Join) or (isinstance(below, Project) and _stands_on_join(below))


def _above(node: Node, conditions: Sequence[Expression]) -> Node:
    predicate = conjunction(conditions)
    return node if predicate is None else Filter(node, predicate)


def _filtered_join(join: Join, conditions: Sequence[Expression]) -> Node:
    """A WHERE over a join: an inner one takes all of it as its own condition, others what a kept side allows."""
    if join.kind is JoinKind.INNER:
        reordered = _in_order_of_equations(join, conditions)
        if reordered is not None:
            return reordered
        everything = [*_conditions_of(join), *conditions]
        return join_nodes(join.left, join.right, JoinKind.INNER, everything, state_ttl_ms=join.state_ttl_ms)
    ours, theirs = set(join.left.schema.names), set(join.right.schema.names)
    left: list[Expression] = []
    right: list[Expression] = []
    if join.kind in (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI):
        left = [condition for condition in conditions if set(columns_of(condition)) <= ours]
    elif join.kind is JoinKind.RIGHT:
        right = [condition for condition in conditions if set(columns_of(condition)) <= theirs]
    rest = [condition for condition in conditions if condition not in (*left, *right)]
    return _above(replace(join, left=filter_rows(join.left, left), right=filter_rows(join.right, right)), rest)


def _in_order_of_equations(join: Join, conditions: Sequence[Expression]) -> Node | None:
    """A chain of inner joins in an order in which equations lead from input to input; None where FROM's order does.

    FROM may name tables in any order. Taken as it stands, a table that only a later one has an equation with would be
    joined with every row before it.
    """
    inputs, everything = _chain(join)
    everything += conditions
    names = [set(below.schema.names) for below in inputs]
    reads = [set(columns_of(of)) for of in everything if isinstance(of, Call) and of.function == "="]

    def leads(known: set[str], to: int) -> bool:
        return any(read & known and read & names[to] and read <= known | names[to] for read in reads)

    left, order, known = list(range(1, len(inputs))), [0], set(names[0])
    while left:
        # The first one in FROM's order, which so stays wherever it has an equation for the next table.
        found = next((number for number in left if leads(known, number)), left[0])
        left.remove(found)
        order.append(found)
        known |= names[found]
    if order == sorted(order):
        return None
    node, known, waiting = inputs[0], set(names[0]), everything
    for number in order[1:]:
        known |= names[number]
        now = [of for of in waiting if set(columns_of(of)) <= known]
        waiting = [of for of in waiting if of not in now]
        node = join_nodes(node, inputs[number], JoinKind.INNER, now)
    fields = join.schema.fields
    return _above(project(node, ((of.name, Column(of.name, of.type)) for of in fields)), waiting)


def _chain(join: Join) -> tuple[list[Node], list[Expression]]:
    """The inputs of inner joins that stand on each other's left side, from left to right, and all their conditions."""
    conditions = _conditions_of(join)
    below = join.left
    is_chain = isinstance(below, Join) and below.kind is JoinKind.INNER
    if not isinstance(below, Join) or not is_chain or _is_timed(below) or _is_timed(join):
        return [join.left, join.right], conditions
    inputs, others = _chain(below)
    return [*inputs, join.right], [*others, *conditions]


def _is_timed(join: Join) -> bool:
    """Whether more than rows and conditions is said of the join: times, windows, or how long rows are kept."""
    return join.bounds is not None or join.window_ends is not None or join.state_ttl_ms is not None


def _conditions_of(join: Join) -> list[Expression]:
    """The keys, the bounds and the condition of a join, as conditions again."""
    ours = {of.name: Column(of.name, of.type) for of in join.left.schema.fields}
    theirs = {of.name: Column(of.name, of.type) for of in join.right.schema.fields}
    conditions = [Call("=", (ours[mine], theirs[other]), BOOLEAN) for mine, other in join.keys]
    if join.bounds is not None:
        left, right = ours[join.bounds.left_time], theirs[join.bounds.right_time]
        for operator, bound_ms in ((">=", join.bounds.lower_ms), ("<=", join.bounds.upper_ms)):
            moved = Literal(datetime.timedelta(milliseconds=bound_ms), DataType(TypeKind.INTERVAL_DAY, nullable=False))
            conditions.append(Call(operator, (left, Call("+", (right, moved), right.type)), BOOLEAN))
    return [*conditions, *conjuncts_of(join.condition)]
