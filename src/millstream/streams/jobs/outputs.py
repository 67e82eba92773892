"""Opens the sources and sinks of a plan through their connectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream.streams.connectors.opening import code_of, connected_table
from millstream.streams.connectors.print.sink import PrintSink
from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.table import ShowRows, SinkRequest
from millstream.streams.errors import JobError
from millstream.streams.jobs.progress import QUERY_SINK, ResultRows
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan, scans_of
from millstream.streams.plan.nodes import Sink as Insert
from millstream.streams.plan.tables import Table
from millstream.streams.spark.sinks.sink import ConnectedSink, Sink
from millstream.streams.spark.source.connected import ConnectedSource
from millstream.streams.spark.source.reading import Source

__all__ = ["QUERY_SINK", "Output", "ends_by_itself", "open_source", "outputs_of", "tables_of"]


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


OnRows = Callable[[ResultRows], None]


@dataclass(frozen=True)
class Output:
    """One INSERT or query; `table` is what an INSERT INTO adds rows to.

    Rows of merged INSERTs are counted by the values of their column `told_by`.
    """

    node: Node
    sink: Sink
    table: Table | None = None
    told_by: str | None = None


def outputs_of(plan: JobPlan | QueryPlan, settings: JobSettings, on_rows: OnRows | None) -> list[Output]:
    """The outputs of `plan` in its order. Raises JobError SINK_FAILED for a table that cannot be written."""
    if isinstance(plan, QueryPlan):
        show = _row_display(on_rows)
        show_query = None if show is None else partial(show, QUERY_SINK)
        return [Output(plan.query, PrintSink(QUERY_SINK, plan.query.schema, show_query))]
    return [
        Output(sink.input, _sink(number, sink, settings, on_rows), None if sink.overwrites else sink.table)
        for number, sink in enumerate(plan.sinks)
    ]


def _sink(number: int, insert: Insert, settings: JobSettings, on_rows: OnRows | None) -> Sink:
    table, row = insert.table, connector_of(insert.table.connector)
    if row.job_sink:
        make: Callable[[SinkRequest], Sink] = code_of(row.job_sink)
        return make(SinkRequest(number, insert, settings.nameserver, settings.batch, _row_display(on_rows)))
    if row.sink:
        return ConnectedSink(table.connector, connected_table(table, row, settings.nameserver))
    raise JobError("SINK_FAILED", f"The table {table.name} cannot be written: its connector is {table.connector!r}.")


def _row_display(on_rows: OnRows | None) -> ShowRows | None:
    """What gives rows to who runs the job, under a label."""
    if on_rows is None:
        return None
    show = on_rows

    def tell(label: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], kinds: list[int] | None) -> None:
        show(ResultRows(label, columns, rows, None if kinds is None else [RowKind(kind) for kind in kinds]))

    return tell
