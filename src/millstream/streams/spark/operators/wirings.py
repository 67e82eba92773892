"""How a plan's node becomes an operator: which columns it reads of which inputs, by what its rows are spread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from millstream.streams.functions.casting import common_type, same_shape
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.operators.joins.interval_joining import IntervalJoiner
from millstream.streams.operators.joins.not_in_joining import NotInJoiner
from millstream.streams.operators.joins.regular_joining import JoinShape, RegularJoiner
from millstream.streams.operators.joins.temporal_joining import TemporalJoiner
from millstream.streams.operators.joins.window_joining import WindowJoiner
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.normalize import ConflictOperator, Normalizer
from millstream.streams.operators.operator import Operator
from millstream.streams.operators.over.batch_over import BatchOver
from millstream.streams.operators.over.retracting_over import RetractingOver
from millstream.streams.operators.over.streaming_over import OverFrame
from millstream.streams.operators.over.streaming_over import StreamingOver as OverOperator
from millstream.streams.operators.ranking import FirstRows, Ranker
from millstream.streams.operators.set_operations import SetOperator
from millstream.streams.operators.sorting import Limiter, Sorter
from millstream.streams.operators.watermark_buffer import WatermarkTeller
from millstream.streams.plan.aggregates import Aggregate, WindowAggregate
from millstream.streams.plan.changelog import ChangelogMode, changelog_of, first_by_time, upsert_key_of
from millstream.streams.plan.expressions import Call, Cast, Column, Expression
from millstream.streams.plan.joins import Join, JoinKind, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import (
    Node,
    Normalize,
    OnePerKey,
    Project,
    Values,
    Watermarked,
    WindowRows,
    inputs_of,
)
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.types import BOOLEAN, DataType, Schema, TypeKind
from millstream.streams.spark.operators.aggregate_wirings import (
    aggregate_wiring,
    match_wiring,
    spec_of,
    window_rows_wiring,
    window_wiring,
)
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns, order_places, places_of

__all__ = [
    "WIRINGS",
    "join_wiring",
    "operators_of",
    "over_wiring",
    "rank_wiring",
    "sort_wiring",
    "temporal_wiring",
    "wiring_of",
]


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
    """NOT IN over columns that may be NULL. All rows meet in one key group."""
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
    """Both keys in one type, so that equal values meet in one key group."""
    common = common_type((left.type, right.type))
    first, second = (one if same_shape(one.type, common) else Cast(one, common) for one in (left, right))
    return first, second


def _wire(node: Node, keys: Sequence[Expression]) -> Wire:
    return Wire(node, (*keys, *all_columns(node.schema)), tuple(range(len(keys))))


def rank_wiring(node: Rank) -> Wiring:
    """Top-N and deduplication."""
    schema = node.input.schema
    partition = places_of(schema, node.partition)
    wires = (Wire(node.input, all_columns(schema), partition),)
    time = first_by_time(node)
    if time is not None:
        ranked = node.rank_name is not None
        return Wiring(partial(FirstRows, partition, schema.names.index(time), ranked=ranked), wires)
    changing = changelog_of(node.input) is ChangelogMode.RETRACT
    make = partial(
        Ranker,
        partition,
        order_places(schema, node.order),
        node.function,
        node.first,
        node.last,
        ranked=node.rank_name is not None,
        changing=changing,
        window_end=None if node.window_end is None else schema.names.index(node.window_end),
        newest_first=_newest_first(node, changing=changing),
    )
    return Wiring(make, wires)


def _newest_first(node: Rank, *, changing: bool) -> bool:
    """Whether of rows of one time the one that came last counts: for the last row of each key, as in Flink.

    Processing time stands still within a micro-batch, whose rows came one after the other all the same.
    """
    time = node.input.schema.find(node.order[0].column) if len(node.order) == 1 else None
    if time is None or node.order[0].ascending:
        return False
    keeps_last = node.function == "ROW_NUMBER" and node.first == node.last == 1 and not changing
    return time.proctime or (time.rowtime and keeps_last)


def sort_wiring(node: Sort) -> Wiring:
    """ORDER BY, LIMIT and OFFSET. All rows meet in one key group."""
    schema = node.input.schema
    wire = (Wire(node.input, all_columns(schema), ()),)
    changing = changelog_of(node.input) is ChangelogMode.RETRACT
    order = order_places(schema, node.order)
    if (node.order and node.limit is not None) or (changing and (node.limit is not None or node.offset)):
        last = sys.maxsize if node.limit is None else node.offset + node.limit
        top = partial(Ranker, (), order, "ROW_NUMBER", node.offset + 1, last, ranked=False, changing=changing)
        return Wiring(top, wire)
    if not node.order:
        return Wiring(partial(Limiter, node.offset, node.limit), wire)
    first = schema.find(node.order[0].column)
    ascends = first is not None and node.order[0].ascending
    time = order[0].place if first is not None and first.rowtime and ascends else None
    on_arrival = first is not None and first.proctime and ascends
    return Wiring(partial(Sorter, order, time=time, on_arrival=on_arrival, skip=node.offset), wire)


_US = 1000
"""Microseconds in a millisecond."""

_DAY_MS = 86_400_000


def over_wiring(node: Over) -> Wiring:
    """OVER in the order of time, or of anything where results change as rows come."""
    if node.whole:
        return _whole_wiring(node)
    schema = node.input.schema
    columns: list[Expression] = list(all_columns(schema))
    specs = tuple(spec_of(over.call, columns) for over in node.calls)
    partition = places_of(schema, node.partition)
    frame = node.frame
    preceding = frame.preceding
    if preceding is not None and frame.unit == "range":
        preceding *= _US
    moving = OverFrame(frame.unit, preceding)
    order = order_places(schema, node.order)
    first = schema.fields[schema.names.index(node.order[0].column)]
    time = schema.names.index(first.name)
    width = len(schema.fields)
    wire = (Wire(node.input, tuple(columns), partition),)
    if changelog_of(node) is ChangelogMode.RETRACT:
        return Wiring(partial(RetractingOver, width, partition, order, specs, moving, time=time), wire)
    at = None if first.proctime else time
    return Wiring(partial(OverOperator, width, partition, order, specs, moving, time=at), wire)


def _whole_wiring(node: Over) -> Wiring:
    """OVER that looks at whole partitions, at the end of a run."""
    schema = node.input.schema
    columns: list[Expression] = list(all_columns(schema))
    specs = tuple(spec_of(over.call, columns) for over in node.calls)
    partition = places_of(schema, node.partition)
    frame = OverFrame(node.frame.unit, node.frame.preceding, node.frame.following)
    if frame.unit == "range" and node.order:
        of = schema.fields[schema.names.index(node.order[0].column)].type
        frame = OverFrame("range", _distance_of(frame.preceding, of), _distance_of(frame.following, of))
    order = tuple(OrderColumn(schema.names.index(key.column), key.ascending, key.has_nulls_first) for key in node.order)
    make = partial(BatchOver, len(schema.fields), partition, order, specs, frame)
    return Wiring(make, (Wire(node.input, tuple(columns), partition),))


def _distance_of(distance: int | None, of: DataType) -> int | None:
    """A distance of a range in the unit of the column's values."""
    if distance is None or of.is_number:
        return distance
    return distance // _DAY_MS if of.kind is TypeKind.DATE else distance * _US


def wiring_of(node: Node) -> Wiring | None:
    """The operator of `node`; None for a node that needs none."""
    wire = WIRINGS.get(type(node))
    return None if wire is None else wire(node)


def operators_of(node: Node) -> Iterator[Node]:
    """The nodes below (and including) `node` that operators run in a stream, in the order in which they are made."""
    wiring = wiring_of(node)
    for below in inputs_of(node) if wiring is None else (wire.node for wire in wiring.inputs):
        yield from operators_of(below)
    if wiring is not None:
        yield node


def _normalize(node: Normalize) -> Wiring:
    schema = node.input.schema
    keys = places_of(schema, node.keys)
    return Wiring(partial(Normalizer, keys), (Wire(node.input, all_columns(schema), keys),))


def _one_per_key(node: OnePerKey) -> Wiring:
    schema = node.input.schema
    keys = places_of(schema, node.keys)
    make = partial(ConflictOperator, keys, node.keys, node.on_conflict)
    return Wiring(make, (Wire(node.input, all_columns(schema), keys),))


def _wire_watermark(node: Watermarked) -> Wiring:
    # One bucket: rows keep their order.
    return Wiring(WatermarkTeller, (Wire(node.input, all_columns(node.input.schema), ()),))


def _set_operation(node: SetOperation) -> Wiring:
    keys = tuple(place for place, field in enumerate(node.schema.fields) if _is_spread(field.type))
    make = partial(SetOperator, node.kind, keep_all=node.keep_all)
    return Wiring(make, tuple(Wire(side, all_columns(side.schema), keys) for side in (node.left, node.right)))


def _is_spread(of: DataType) -> bool:
    """Whether rows can be spread by values of the type; Spark does not hash maps, whose entries have no order."""
    inside = (*of.elements, *(field.type for field in of.fields))
    return of.kind is not TypeKind.MAP and all(map(_is_spread, inside))


WIRINGS: dict[type[Any], Callable[[Any], Wiring | None]] = {
    Aggregate: aggregate_wiring,
    WindowAggregate: window_wiring,
    Join: join_wiring,
    Normalize: _normalize,
    OnePerKey: _one_per_key,
    Rank: rank_wiring,
    Sort: sort_wiring,
    WindowRows: window_rows_wiring,
    SetOperation: _set_operation,
    TemporalJoin: temporal_wiring,
    Over: over_wiring,
    Match: match_wiring,
    Watermarked: _wire_watermark,
}
"""What makes the wiring of each kind of node."""
