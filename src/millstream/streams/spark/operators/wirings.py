"""The table of all operators of ours, by the node that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.streams.operators.normalize import Normalizer
from millstream.streams.operators.ranking import Place, Ranker
from millstream.streams.operators.set_operations import SetOperator
from millstream.streams.plan.aggregates import Aggregate, WindowAggregate
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.joins import Join, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import Node, Normalize
from millstream.streams.plan.ordering import OrderKey, Over, Rank
from millstream.streams.plan.types import DataType, Schema, TypeKind
from millstream.streams.spark.operators.aggregate_wirings import aggregate_wiring, window_wiring
from millstream.streams.spark.operators.join_wirings import join_wiring, temporal_wiring
from millstream.streams.spark.operators.over_wirings import over_wiring
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns, order_places, places_of

__all__ = ["WIRINGS", "wiring_of"]


def wiring_of(node: Node) -> Wiring | None:
    """The operator of `node`; None for a node that needs none."""
    wire = WIRINGS.get(type(node))
    return None if wire is None else wire(node)


def _normalize(node: Normalize) -> Wiring:
    schema = node.input.schema
    keys = places_of(schema, node.keys)
    return Wiring(partial(Normalizer, keys), (Wire(node.input, all_columns(schema), keys),))


def _rank(node: Rank) -> Wiring:
    schema = node.input.schema
    partition = places_of(schema, node.partition)
    make = partial(
        Ranker,
        partition,
        order_places(schema, node.order),
        node.function,
        node.first,
        node.last,
        ranked=node.rank_name is not None,
        changing=changelog_of(node.input) is Changelog.RETRACT,
        window_end=None if node.window_end is None else schema.names.index(node.window_end),
    )
    return Wiring(make, (Wire(node.input, all_columns(schema), partition),))


def _order(schema: Schema, order: tuple[OrderKey, ...]) -> tuple[Place, ...]:
    """The columns of an ORDER BY by their places. One over processing time says nothing: rows come in its order."""
    fields = {field.name: field for field in schema.fields}
    return tuple(
        Place(schema.names.index(key.column), key.ascending, key.has_nulls_first)
        for key in order
        if not (fields[key.column].proctime and key.ascending)
    )


def _set_operation(node: SetOperation) -> Wiring:
    keys = tuple(place for place, field in enumerate(node.schema.fields) if _is_spread(field.type))
    make = partial(SetOperator, node.kind, keep_all=node.keep_all)
    return Wiring(make, tuple(Wire(side, all_columns(side.schema), keys) for side in (node.left, node.right)))


def _is_spread(of: DataType) -> bool:
    """Whether rows can be spread by values of the type; Spark does not hash maps, whose entries have no order."""
    inside = (*of.elements, *(field.type for field in of.fields))
    return of.kind is not TypeKind.MAP and all(map(_is_spread, inside))


WIRINGS: dict[type[Any], Callable[[Any], Wiring]] = {
    Aggregate: aggregate_wiring,
    WindowAggregate: window_wiring,
    Join: join_wiring,
    Normalize: _normalize,
    Rank: _rank,
    SetOperation: _set_operation,
    TemporalJoin: temporal_wiring,
    Over: over_wiring,
}
"""What makes the wiring of each kind of node."""
