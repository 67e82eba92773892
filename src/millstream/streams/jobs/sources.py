"""The source tables of one pipeline, opened by the code that their connectors name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millstream.streams.connectors.opening import code_of
from millstream.streams.connectors.registry import connector_of
from millstream.streams.errors import JobError
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.nodes import Node, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.spark.source.connected_source import ConnectedSource
from millstream.streams.spark.source.reading import Source

__all__ = ["ends_by_itself", "open_source", "tables_of"]


def open_source(table: Table, settings: JobSettings) -> Source:
    """The source of `table`. Raises JobError JOB_FAILED for a connector that cannot be read."""
    connector = connector_of(table.connector)
    if connector.job_source:
        make: Callable[[Table, JobSettings], Source] = code_of(connector.job_source)
        return make(table, settings)
    if connector.source:
        return ConnectedSource(table, settings.nameserver, settings.max_rows)
    raise JobError("JOB_FAILED", f"The table {table.name} cannot be read: its connector is {table.connector!r}.")


def ends_by_itself(table: Table) -> bool:
    """Whether a table has an end, so that a job over such tables alone ends as a bounded one does."""
    return connector_of(table.connector).ends_with(table.options)


def tables_of(nodes: Iterable[Node]) -> list[Table]:
    """The tables that are read, each once, in the order of the plan."""
    found: dict[str, Table] = {}
    for node in nodes:
        for scan in scans_of(node):
            found.setdefault(scan.table.name, scan.table)
    return list(found.values())
