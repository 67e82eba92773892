"""The table of all operators of ours, by the node that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.streams.operators.conflicts import ConflictOperator
from millstream.streams.operators.normalize import Normalizer
from millstream.streams.operators.set_operations import SetOperator
from millstream.streams.operators.watermarking import WatermarkTeller
from millstream.streams.plan.aggregates import Aggregate, WindowAggregate
from millstream.streams.plan.conflicts import OnePerKey
from millstream.streams.plan.joins import Join, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import Node, Normalize, WindowRows
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.plan.watermarked import Watermarked
from millstream.streams.spark.operators.aggregate_wirings import aggregate_wiring, window_rows_wiring, window_wiring
from millstream.streams.spark.operators.join_wirings import join_wiring, temporal_wiring
from millstream.streams.spark.operators.match_wirings import match_wiring
from millstream.streams.spark.operators.order_wirings import rank_wiring, sort_wiring
from millstream.streams.spark.operators.over_wirings import over_wiring
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns, places_of

__all__ = ["WIRINGS", "wiring_of"]


def wiring_of(node: Node) -> Wiring | None:
    """The operator of `node`; None for a node that needs none."""
    wire = WIRINGS.get(type(node))
    return None if wire is None else wire(node)


def _normalize(node: Normalize) -> Wiring:
    schema = node.input.schema
    keys = places_of(schema, node.keys)
    return Wiring(partial(Normalizer, keys), (Wire(node.input, all_columns(schema), keys),))


def _one_per_key(node: OnePerKey) -> Wiring:
    schema = node.input.schema
    keys = places_of(schema, node.keys)
    make = partial(ConflictOperator, keys, node.keys, node.on_conflict)
    return Wiring(make, (Wire(node.input, all_columns(schema), keys),))


def _watermarked(node: Watermarked) -> Wiring:
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
    Watermarked: _watermarked,
}
"""What makes the wiring of each kind of node."""
