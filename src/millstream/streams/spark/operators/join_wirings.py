"""The wirings of joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from millstream.streams.functions.casting import common_type, same_shape
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.operators.joins.interval_joining import IntervalJoiner
from millstream.streams.operators.joins.not_in_joining import NotInJoiner
from millstream.streams.operators.joins.regular_joining import JoinShape, RegularJoiner
from millstream.streams.operators.joins.temporal_joining import TemporalJoiner
from millstream.streams.operators.joins.window_joining import WindowJoiner
from millstream.streams.operators.operator import Operator
from millstream.streams.plan.changelog import ChangelogMode, changelog_of, upsert_key_of
from millstream.streams.plan.expressions import Call, Cast, Column, Expression
from millstream.streams.plan.joins import Join, JoinKind, TemporalJoin
from millstream.streams.plan.nodes import Node, Project, Values
from millstream.streams.plan.ordering import Rank
from millstream.streams.plan.types import BOOLEAN, Schema
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns

__all__ = ["join_wiring", "temporal_wiring"]


@dataclass(frozen=True, slots=True)
class _Make:
    """Makes the operator of a join in a worker: a condition becomes a function there."""

    join: Join
    left: Schema
    right: Schema
    condition: Expression | None

    def __call__(self) -> Operator:
        join = self.join
        shape = _shape(join.kind, len(join.keys), self.left, self.right, self.condition)
        if join.bounds is not None:
            bounds = join.bounds
            times = (self.left.names.index(bounds.left_time), self.right.names.index(bounds.right_time))
            return IntervalJoiner(shape, times, bounds.lower_ms * 1000, bounds.upper_ms * 1000)
        if join.window_ends is not None:
            left, right = join.window_ends
            return WindowJoiner(shape, (self.left.names.index(left), self.right.names.index(right)))
        return RegularJoiner(shape)


@dataclass(frozen=True, slots=True)
class _MakeTemporal:
    """Makes the operator of a temporal join in a worker. `times` are the columns of both sides' times."""

    kind: JoinKind
    keys: int
    times: tuple[str, str]
    left: Schema
    right: Schema
    condition: Expression | None

    def __call__(self) -> Operator:
        shape = _shape(self.kind, self.keys, self.left, self.right, self.condition)
        left, right = self.times
        return TemporalJoiner(shape, (self.left.names.index(left), self.right.names.index(right)))


def _shape(kind: JoinKind, keys: int, left: Schema, right: Schema, condition: Expression | None) -> JoinShape:
    places = {name: place for place, name in enumerate((*left.names, *right.names))}
    fits = None if condition is None else evaluator(condition, places)
    return JoinShape(kind, keys, (len(left.fields), len(right.fields)), fits)


def join_wiring(node: Join) -> Wiring:
    """A join of any kind. The condition of an inner join is looked at outside of the operator."""
    left, right = node.left.schema, node.right.schema
    if node.null_aware:
        return _not_in_wiring(node)
    inner = node.kind is JoinKind.INNER
    make: Callable[[], Operator] = _Make(_bare(node), left, right, None if inner else node.condition)
    # Shows at once whether the condition can be evaluated.
    make()
    ttls = zip(("left", "right"), node.state_ttl_ms or (), strict=False)
    lives = tuple((name, ttl_ms) for name, ttl_ms in ttls if ttl_ms is not None)
    return Wiring(make, _sides(node), node.condition if inner else None, lives)


def _not_in_wiring(node: Join) -> Wiring:
    """NOT IN over columns that may be NULL. All rows meet in one bucket."""
    wires = (replace(wire, keys=()) for wire in _sides(node))
    return Wiring(partial(NotInJoiner, len(node.keys)), tuple(wires))


def temporal_wiring(node: TemporalJoin) -> Wiring:
    """A join with the versions of a table, by its primary key; what else is equal is a condition."""
    node = _by_primary_key(node)
    node = replace(node, right=_versions(node))
    inner = node.kind is JoinKind.INNER
    make = _MakeTemporal(
        node.kind,
        len(node.keys),
        (node.left_time, node.right_time),
        node.left.schema,
        node.right.schema,
        None if inner else node.condition,
    )
    make()
    return Wiring(make, _sides(node), node.condition if inner else None)


def _by_primary_key(node: TemporalJoin) -> TemporalJoin:
    primary = upsert_key_of(node.right)
    keys = tuple(pair for pair in node.keys if primary is None or pair[1] in primary)
    equations = tuple(
        Call("=", (_column(node.left.schema, ours), _column(node.right.schema, theirs)), BOOLEAN)
        for ours, theirs in node.keys
        if (ours, theirs) not in keys
    )
    conditions = (*equations, *(() if node.condition is None else (node.condition,)))
    condition = Call("AND", conditions, BOOLEAN) if len(conditions) > 1 else next(iter(conditions), None)
    return replace(node, keys=keys, condition=condition)


def _versions(node: TemporalJoin) -> Node:
    """The right input, without a deduplication that keeps the newest row of each key: all its rows are versions.

    The deduplication would tell of several that come in one turn the last one alone.
    """
    time: str | None = node.right_time
    keys: set[str | None] = {theirs for _, theirs in node.keys}
    below, above = node.right, list[Project]()
    while isinstance(below, Project):
        names = {name: value.name for name, value in below.columns if isinstance(value, Column)}
        time, keys = names.get(time or ""), {names.get(key or "") for key in keys}
        above.append(below)
        below = below.input
    if (
        not isinstance(below, Rank)
        or below.function != "ROW_NUMBER"
        or not below.first == below.last == 1
        or not (below.rank_name is None and below.window_end is None)
        or [(key.column, key.ascending) for key in below.order] != [(time, False)]
        or not set(below.partition) <= keys
        or changelog_of(below.input) is not ChangelogMode.APPEND
    ):
        return node.right
    versions = below.input
    for project in reversed(above):
        versions = replace(project, input=versions)
    return versions


def _sides(node: Join | TemporalJoin) -> tuple[Wire, Wire]:
    """Both inputs by their keys."""
    left, right = node.left.schema, node.right.schema
    alike = [_alike(_column(left, ours), _column(right, theirs)) for ours, theirs in node.keys]
    return _wire(node.left, [ours for ours, _ in alike]), _wire(node.right, [theirs for _, theirs in alike])


def _bare(node: Join) -> Join:
    """The join without its inputs, which need not travel to the workers."""
    nothing = Values(Schema(()), ())
    return Join(nothing, nothing, node.kind, node.keys, None, node.bounds, node.window_ends)


def _column(schema: Schema, name: str) -> Column:
    field = schema.find(name)
    if field is None:
        raise ValueError(f"no column {name!r} in the join's input")
    return Column(name, field.type)


def _alike(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Both keys in one type, so that equal values meet in one bucket."""
    common = common_type((left.type, right.type))
    first, second = (one if same_shape(one.type, common) else Cast(one, common) for one in (left, right))
    return first, second


def _wire(node: Node, keys: Sequence[Expression]) -> Wire:
    return Wire(node, (*keys, *all_columns(node.schema)), tuple(range(len(keys))))
