"""Narrowing of scans to the columns that are read above them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millstream.streams.plan.expressions import columns_of
from millstream.streams.plan.nodes import (
    Filter,
    Node,
    Project,
    Scan,
    WindowAggregate,
    WindowRows,
    inputs_of,
    with_inputs,
)
from millstream.streams.plan.tables import ComputedColumn

__all__ = ["prune"]


def prune(node: Node) -> Node:
    """The same plan, reading only what it needs."""
    return _prune(node, set(node.schema.names), windowed=False)


def _prune(node: Node, wanted: set[str], *, windowed: bool) -> Node:
    match node:
        case Scan():
            return _scan(node, wanted, windowed=windowed)
        case Project():
            columns = tuple((name, value) for name, value in node.columns if name in wanted)
            needed = {name for _, value in columns for name in columns_of(value)}
            rowtime = node.rowtime & {name for name, _ in columns}
            return Project(_prune(node.input, needed, windowed=windowed), columns, rowtime)
        case Filter():
            needed = wanted | set(columns_of(node.predicate))
            return replace(node, input=_prune(node.input, needed, windowed=windowed))
        case WindowRows():
            needed = (wanted & set(node.input.schema.names)) | {node.window.time_column}
            return replace(node, input=_prune(node.input, needed, windowed=windowed))
        case WindowAggregate():
            needed = {node.window.time_column}
            for _, key in node.keys:
                needed |= set(columns_of(key))
            for _, call in node.aggregates:
                for part in call.parts:
                    needed |= set(columns_of(part))
            return replace(node, input=_prune(node.input, needed, windowed=True))
        case _:
            inputs = tuple(_prune(below, set(below.schema.names), windowed=True) for below in inputs_of(node))
            return with_inputs(node, inputs)


def _scan(scan: Scan, wanted: Iterable[str], *, windowed: bool) -> Scan:
    needed = set(wanted)
    watermark = scan.table.watermark
    if windowed and watermark is not None:
        needed.add(watermark.column)
    for column in scan.table.columns:
        if isinstance(column, ComputedColumn) and column.name in needed:
            needed |= set(columns_of(column.expression))
    return replace(scan, columns=tuple(name for name in scan.table.schema.names if name in needed))
