"""The options under which a job reads its tables: each is one source, so it has one set of them."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import Node, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["check_read_options", "check_read_options_of_script"]


def check_read_options(nodes: Iterable[Node]) -> None:
    """Refuse a job that reads a table with two sets of options, which hints may give. Raises SQL_UNSUPPORTED."""
    found = _two_ways(nodes)
    if found is not None:
        raise SqlError("SQL_UNSUPPORTED", found[0], remedy=found[1])


def check_read_options_of_script(nodes: Iterable[Node], span: Span, script: Script) -> None:
    """The same, with the place in the script."""
    found = _two_ways(nodes)
    if found is not None:
        raise script.error("SQL_UNSUPPORTED", found[0], span, remedy=found[1])


def _two_ways(nodes: Iterable[Node]) -> tuple[str, str] | None:
    """What is wrong, and the remedy."""
    read: dict[str, Table] = {}
    for node in nodes:
        for scan in scans_of(node):
            table = read.setdefault(scan.table.name, scan.table)
            if table.options != scan.table.options:
                pairs = table.options.items() ^ scan.table.options.items()
                keys = ", ".join(sorted({f"'{key}'" for key, _ in pairs}))
                message = f'The job reads "{table.name}" in two ways: {keys} differs.'
                return message, (
                    f"Give each use the same OPTIONS(...), or read a second table: CREATE TABLE b LIKE {table.name}."
                )
    return None
