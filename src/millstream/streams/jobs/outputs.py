"""The outputs of a plan: the node that makes the rows, and the sink that takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.streams.connectors.opening import connected_table
from millstream.streams.errors import JobError
from millstream.streams.jobs.database_output import database_sink
from millstream.streams.jobs.file_outputs import file_sink
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan
from millstream.streams.plan.nodes import Sink as Insert
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Schema
from millstream.streams.spark.sinks.connected import ConnectedSink
from millstream.streams.spark.sinks.console import BlackholeSink, PrintSink
from millstream.streams.spark.sinks.sink import Sink
from millstream.streams.spark.sinks.topic import MessageMaker, TopicSink, UpsertSink
from millstream.streams.spark.source.body_format import UPSERTS
from millstream.streams.spark.source.topic_log import Access
from millstream.streams.sql.connectors import CONNECTORS

__all__ = ["QUERY_SINK", "Output", "outputs_of"]

QUERY_SINK = "result"
"""Name of the rows of an interactive query."""

SEND_TIMEOUT_S = 10.0
"""How long the acknowledgement of one send may take."""

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
        return [Output(plan.query, _print_sink(QUERY_SINK, QUERY_SINK, plan.query.schema, on_rows))]
    return [
        Output(sink.input, _sink(number, sink, settings, on_rows), None if sink.overwrites else sink.table)
        for number, sink in enumerate(plan.sinks)
    ]


def _sink(number: int, insert: Insert, settings: JobSettings, on_rows: OnRows | None) -> Sink:
    table, schema = insert.table, insert.input.schema
    match table.connector:
        case "print":
            label = table.options.get("print-identifier") or table.name
            return _print_sink(table.name, label, schema, on_rows)
        case "blackhole":
            return BlackholeSink(table.name, schema)
        case "filesystem":
            return file_sink(number, insert)
        case "jdbc":
            return database_sink(insert, settings)
        case "rocketmq" | "upsert-rocketmq" as connector:
            nameserver = table.options.get("nameserver", settings.nameserver)
            kind = UpsertSink if connector == UPSERTS else TopicSink
            return kind(
                table.name,
                MessageMaker.of(table),
                nameserver,
                timeout_s=SEND_TIMEOUT_S,
                access=Access.of(table.options),
            )
        case connector if connector in CONNECTORS and CONNECTORS[connector].sink:
            row = CONNECTORS[connector]
            return ConnectedSink(connector, connected_table(table, row, settings.nameserver))
        case connector:
            raise JobError("SINK_FAILED", f"The table {table.name} cannot be written: its connector is {connector!r}.")


def _print_sink(name: str, label: str, schema: Schema, on_rows: OnRows | None) -> PrintSink:
    if on_rows is None:
        return PrintSink(name, schema, None)
    show = on_rows

    def tell(columns: tuple[str, ...], rows: list[tuple[Any, ...]], kinds: list[int] | None) -> None:
        show(ResultRows(label, columns, rows, None if kinds is None else [RowKind(kind) for kind in kinds]))

    return PrintSink(name, schema, tell)
