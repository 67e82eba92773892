"""The wirings of nodes that tell each row what came before it."""

from __future__ import annotations

from functools import partial

from millstream.streams.operators.changing_overs import ChangingOver
from millstream.streams.operators.overs import Over as OverOperator
from millstream.streams.operators.overs import OverFrame
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.ordering import Over
from millstream.streams.spark.operators.aggregate_wirings import spec_of
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns, order_places, places_of

__all__ = ["over_wiring"]

_US = 1000
"""Microseconds in a millisecond."""


def over_wiring(node: Over) -> Wiring:
    """OVER in the order of time, or of anything where results change as rows come."""
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
