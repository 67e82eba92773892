"""Splits plans over rule hits: one query evaluates rules and packs hits, another keeps the state.

A topic of packed hits is between the two. Which outputs need that, and where the topic is, `jobs/two_stage_rules.py`
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.rules.options import HITS_TOPIC
from millstream.streams.optimizer.scan_predicates import predicates_above
from millstream.streams.plan.branch import columns_read
from millstream.streams.plan.expressions import Call, Column, Expression
from millstream.streams.plan.hits import HIT_COLUMNS, SOURCE_QUEUE
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, inputs_of, scans_of, with_inputs
from millstream.streams.plan.tables import ComputedColumn, MetadataColumn, PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, STRING
from millstream.streams.plan.user_calls import has_user_call
from millstream.streams.rules.packed.packer import OFFSET, QUEUE, PackedColumns

__all__ = ["hits_tables", "over_tables", "pack_hits", "packed_columns", "widen_table"]


def hits_tables(nodes: Sequence[Node]) -> tuple[Table, ...]:
    """The tables of hits that the nodes read and that ask for two stages."""
    found = {scan.table.name: scan.table for node in nodes for scan in scans_of(node)}
    hits = (table for table in found.values() if connector_of(table.connector).gives_hits)
    return tuple(table for table in hits if HITS_TOPIC in table.options)


def packed_columns(table: Table, nodes: Sequence[Node]) -> PackedColumns:
    """What the second stage needs of each hit: the stored columns that the nodes read."""
    computed = {column.name for column in table.columns if isinstance(column, ComputedColumn)}
    return PackedColumns.of([name for name in columns_read(table, nodes) if name not in computed])


def widen_table(table: Table, columns: PackedColumns) -> Table:
    """The table with what the packer needs beside what was declared."""
    declared = {column.name for column in table.columns}
    missing = [PhysicalColumn(name, HIT_COLUMNS[name]) for name in columns.input_columns if name not in declared]
    origin = (MetadataColumn(QUEUE, STRING, SOURCE_QUEUE), MetadataColumn(OFFSET, BIGINT, "queue-offset"))
    return replace(table, columns=(*table.columns, *missing, *origin))


def pack_hits(table: Table, columns: PackedColumns, nodes: Sequence[Node]) -> Node:
    """The first stage: those hits of the widened table that one of the nodes wants."""
    wanted = {*columns.input_columns, QUEUE, OFFSET}
    conditions = [above for node in nodes for above in predicates_above(node, table.name)]
    scans = [scan for node in nodes for scan in scans_of(node) if scan.table.name == table.name]
    scanned = wanted.union(*(scan.columns for scan in scans))
    names = tuple(column.name for column in table.columns if column.name in scanned)
    node: Node = Scan(table, names)
    condition = _any(conditions)
    if condition is not None:
        node = Filter(node, condition)
    types = {column.name: column.type for column in table.columns}
    return Project(node, tuple((name, Column(name, types[name])) for name in names if name in wanted))


def over_tables(node: Node, tables: Mapping[str, Table]) -> Node:
    """The same node over other tables, by the names of those that it reads."""
    if isinstance(node, Scan):
        return replace(node, table=tables.get(node.table.name, node.table))
    return with_inputs(node, tuple(over_tables(below, tables) for below in inputs_of(node)))


def _any(conditions: Sequence[tuple[Expression, ...]]) -> Expression | None:
    """What a hit that somebody wants fulfils; None where somebody wants each, or asks a user's function."""
    if any(not parts or any(map(has_user_call, parts)) for parts in conditions):
        return None
    each = [reduce(lambda one, other: Call("AND", (one, other), BOOLEAN), parts) for parts in dict.fromkeys(conditions)]
    return reduce(lambda one, other: Call("OR", (one, other), BOOLEAN), each) if each else None
