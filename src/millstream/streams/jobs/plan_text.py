"""The plan of a pipeline as text beside its checkpoint, to show differences when another plan is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from millstream.streams.plan.nodes import Node, scans_of
from millstream.streams.plan.tables import ComputedColumn, Table
from millstream.streams.sql.shell.explain import explain_node

__all__ = ["OPTIONS_THAT_MATTER", "difference", "plan_lines"]

OPTIONS_THAT_MATTER = (
    "connector",
    "topic",
    "tag",
    "path",
    "format",
    "key.format",
    "key.fields",
    "value.fields-include",
    "index",
    "query",
    "table-name",
    "scan.partition.column",
    "scan.partition.num",
    "scan.partition.lower-bound",
    "scan.partition.upper-bound",
    "origin",
)
"""Table options whose change makes another query; the others (limits, addresses) may change between runs."""

_NOTHING = "nothing"


def plan_lines(outputs: Sequence[tuple[str, Node]]) -> list[str]:
    """The tables that are read, then each output with its nodes."""
    tables: dict[str, Table] = {}
    for _, node in outputs:
        for scan in scans_of(node):
            tables.setdefault(scan.table.name, scan.table)
    lines = [line for table in tables.values() for line in _declaration(table)]
    for name, node in outputs:
        lines.append(f"Output {name}")
        lines += [f"  {line}" for line in explain_node(node)]
    return lines


def _declaration(table: Table) -> Iterator[str]:
    options = ", ".join(f"{name}={table.options[name]}" for name in OPTIONS_THAT_MATTER if name in table.options)
    yield f"Table {table.name} ({options})"
    for column in table.columns:
        made = f" AS {column.expression}" if isinstance(column, ComputedColumn) else ""
        yield f"  {column.name} {column.type}{made}"
    watermark = table.watermark
    if watermark is not None:
        yield f"  watermark {watermark.expression or watermark.column} less {watermark.delay_ms} ms"


def difference(before: Sequence[str], now: Sequence[str]) -> str:
    """The first line that differs, in one sentence; blank if all are equal."""
    for old, new in zip_longest(before, now, fillvalue=_NOTHING):
        if old != new:
            return f"The first difference: it was '{old.strip()}' and is '{new.strip()}' now."
    return ""
