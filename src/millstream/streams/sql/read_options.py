"""The options under which a job reads its tables: each is one source, so it has one set of them."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.streams.plan.nodes import Node, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.sql.script import Script, Span

__all__ = ["check_read_options"]


def check_read_options(nodes: Iterable[Node], span: Span, script: Script) -> None:
    """Refuse a job that reads a table with two sets of options, which hints may give. Raises SQL_UNSUPPORTED."""
    read: dict[str, Table] = {}
    for node in nodes:
        for scan in scans_of(node):
            table = read.setdefault(scan.table.name, scan.table)
            if table.options != scan.table.options:
                pairs = table.options.items() ^ scan.table.options.items()
                keys = ", ".join(sorted({f"'{key}'" for key, _ in pairs}))
                message = f'The job reads "{table.name}" in two ways: {keys} differs.'
                remedy = (
                    f"Give each use the same OPTIONS(...), or read a second table: CREATE TABLE b LIKE {table.name}."
                )
                raise script.error("SQL_UNSUPPORTED", message, span, remedy=remedy)
