"""The wirings of nodes that tell each row what came before it."""

from __future__ import annotations

from functools import partial

from millstream.streams.operators.over.changing_overs import ChangingOver
from millstream.streams.operators.over.overs import Over as OverOperator
from millstream.streams.operators.over.overs import OverFrame
from millstream.streams.operators.over.whole_overs import WholeOver
from millstream.streams.operators.sort_keys import Place
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.ordering import Over
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.operators.aggregate_wirings import spec_of
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns, order_places, places_of

__all__ = ["over_wiring"]

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
    if changelog_of(node) is Changelog.RETRACT:
        return Wiring(partial(ChangingOver, width, partition, order, specs, moving, time=time), wire)
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
        frame = OverFrame("range", _measured(frame.preceding, of), _measured(frame.following, of))
    order = tuple(Place(schema.names.index(key.column), key.ascending, key.has_nulls_first) for key in node.order)
    make = partial(WholeOver, len(schema.fields), partition, order, specs, frame)
    return Wiring(make, (Wire(node.input, tuple(columns), partition),))


def _measured(distance: int | None, of: DataType) -> int | None:
    """A distance of a range in the unit of the column's values."""
    if distance is None or of.is_number:
        return distance
    return distance // _DAY_MS if of.kind is TypeKind.DATE else distance * _US
