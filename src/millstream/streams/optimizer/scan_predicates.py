"""Conditions shared by all readers of a table, by which its source may skip rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.streams.plan.expressions import Expression, operands_of_and
from millstream.streams.plan.nodes import Filter, Node, Scan, inputs_of
from millstream.streams.plan.tables import Table

__all__ = ["predicates_above", "scan_predicates"]


def scan_predicates(table: Table, nodes: Sequence[Node]) -> tuple[Expression, ...]:
    """The conditions right above each read of `table`; the filters stay.

    None for a table with a watermark: event time goes on with rows that nobody wants, too.
    """
    if table.watermark is not None:
        return ()
    reads = [above for node in nodes for above in predicates_above(node, table.name)]
    if not reads:
        return ()
    return tuple(condition for condition in reads[0] if all(condition in above for above in reads[1:]))


def predicates_above(node: Node, table: str) -> list[tuple[Expression, ...]]:
    """The conditions right above each read of the table; none where all its rows are wanted."""
    return list(_above(node, table, ()))


def _above(node: Node, table: str, conditions: tuple[Expression, ...]) -> Iterator[tuple[Expression, ...]]:
    """The conditions above each read of the table."""
    match node:
        case Scan(table=read):
            if read.name == table:
                yield conditions
        case Filter(input=below, predicate=predicate):
            yield from _above(below, table, (*conditions, *operands_of_and(predicate)))
        case _:
            for below in inputs_of(node):
                yield from _above(below, table, ())
