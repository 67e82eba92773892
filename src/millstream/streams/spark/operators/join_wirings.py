"""The wirings of joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.streams.errors import JobError
from millstream.streams.functions.casting import same_shape
from millstream.streams.functions.common_type import common_type
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.operators.interval_joining import IntervalJoiner
from millstream.streams.operators.joining import Joiner, JoinShape
from millstream.streams.operators.operator import Operator
from millstream.streams.operators.window_joining import WindowJoiner
from millstream.streams.plan.expressions import Cast, Column, Expression
from millstream.streams.plan.joins import Join, JoinKind
from millstream.streams.plan.nodes import Node, Values
from millstream.streams.plan.types import Schema
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns

__all__ = ["join_wiring"]


@dataclass(frozen=True, slots=True)
class _Make:
    """Makes the operator of a join in a worker: a condition becomes a function there."""

    join: Join
    left: Schema
    right: Schema
    condition: Expression | None

    def __call__(self) -> Operator:
        join = self.join
        names = (*self.left.names, *self.right.names)
        places = {name: place for place, name in enumerate(names)}
        condition = None if self.condition is None else evaluator(self.condition, places)
        shape = JoinShape(join.kind, len(join.keys), (len(self.left.fields), len(self.right.fields)), condition)
        if join.bounds is not None:
            bounds = join.bounds
            times = (self.left.names.index(bounds.left_time), self.right.names.index(bounds.right_time))
            return IntervalJoiner(shape, times, bounds.lower_ms * 1000, bounds.upper_ms * 1000)
        if join.window_ends is not None:
            left, right = join.window_ends
            return WindowJoiner(shape, (self.left.names.index(left), self.right.names.index(right)))
        return Joiner(shape)


def join_wiring(node: Join) -> Wiring:
    """A join of any kind. The condition of an inner join is looked at outside of the operator."""
    left, right = node.left.schema, node.right.schema
    if node.null_aware:
        _check_no_nulls(node)
    inner = node.kind is JoinKind.INNER
    make: Callable[[], Operator] = _Make(_bare(node), left, right, None if inner else node.condition)
    # Shows at once whether the condition can be evaluated.
    make()
    pairs = [(_column(left, ours), _column(right, theirs)) for ours, theirs in node.keys]
    alike = [_alike(*pair) for pair in pairs]
    sides = (_wire(node.left, [ours for ours, _ in alike]), _wire(node.right, [theirs for _, theirs in alike]))
    return Wiring(make, sides, node.condition if inner else None)


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


def _check_no_nulls(node: Join) -> None:
    for side, place in ((node.left, 0), (node.right, 1)):
        for key in node.keys:
            field = side.schema.find(key[place])
            if field is not None and field.type.nullable:
                raise JobError(
                    "JOB_FAILED",
                    f"NOT IN over {field.name}, which may be NULL, has no operator: one NULL would take all rows back.",
                    remedy="Use NOT EXISTS, or leave NULL out on both sides with IS NOT NULL.",
                )
