"""The wirings of nodes that look at the order of rows: ranks, and sorted or limited results."""

from __future__ import annotations

import sys
from functools import partial

from millstream.streams.operators.first_rows import FirstRows
from millstream.streams.operators.ranking import Ranker
from millstream.streams.operators.sorting import Limiter, Sorter
from millstream.streams.plan.changelog import Changelog, changelog_of, first_by_time
from millstream.streams.plan.ordering import Rank, Sort
from millstream.streams.spark.operators.wiring import Wire, Wiring, all_columns, order_places, places_of

__all__ = ["rank_wiring", "sort_wiring"]


def rank_wiring(node: Rank) -> Wiring:
    """Top-N and deduplication."""
    schema = node.input.schema
    partition = places_of(schema, node.partition)
    wires = (Wire(node.input, all_columns(schema), partition),)
    time = first_by_time(node)
    if time is not None:
        ranked = node.rank_name is not None
        return Wiring(partial(FirstRows, partition, schema.names.index(time), ranked=ranked), wires)
    changing = changelog_of(node.input) is Changelog.RETRACT
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
    """ORDER BY, LIMIT and OFFSET. All rows meet in one bucket."""
    schema = node.input.schema
    wire = (Wire(node.input, all_columns(schema), ()),)
    changing = changelog_of(node.input) is Changelog.RETRACT
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
