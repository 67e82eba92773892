"""The outputs of a plan: the node that makes the rows, and the sink that takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from millstream.streams.errors import JobError
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Schema
from millstream.streams.spark.sinks.console import BlackholeSink, PrintSink
from millstream.streams.spark.sinks.files import FileSink
from millstream.streams.spark.sinks.sink import Sink
from millstream.streams.spark.sinks.topic import MessageMaker, TopicSink, UpsertSink
from millstream.streams.spark.source.body_format import UPSERTS

__all__ = ["QUERY_SINK", "Output", "local_directory", "outputs_of"]

QUERY_SINK = "result"
"""Name of the rows of an interactive query."""

SEND_TIMEOUT_S = 10.0
"""How long the acknowledgement of one send may take."""

OnRows = Callable[[ResultRows], None]


@dataclass(frozen=True)
class Output:
    """One INSERT or query."""

    node: Node
    sink: Sink


def outputs_of(plan: JobPlan | QueryPlan, settings: JobSettings, on_rows: OnRows | None) -> list[Output]:
    """The outputs of `plan` in its order. Raises JobError SINK_FAILED for a table that cannot be written."""
    if isinstance(plan, QueryPlan):
        return [Output(plan.query, _print_sink(QUERY_SINK, QUERY_SINK, plan.query.schema, on_rows))]
    kept = next((sink.table.name for sink in plan.sinks if sink.overwrites), None)
    if kept is not None:
        words = f"INSERT OVERWRITE does not run yet: what {kept} holds would stay."
        raise JobError("SINK_FAILED", words, remedy="Empty its directory and use INSERT INTO.")
    return [
        Output(sink.input, _sink(number, sink.table, sink.input.schema, settings, on_rows))
        for number, sink in enumerate(plan.sinks)
    ]


def _sink(number: int, table: Table, schema: Schema, settings: JobSettings, on_rows: OnRows | None) -> Sink:
    match table.connector:
        case "print":
            label = table.options.get("print-identifier") or table.name
            return _print_sink(table.name, label, schema, on_rows)
        case "blackhole":
            return BlackholeSink(table.name, schema)
        case "filesystem":
            directory = local_directory(table.options["path"])
            return FileSink(table.name, schema, directory, table.options.get("format", "json"), number=number)
        case "rocketmq" | "upsert-rocketmq" as connector:
            nameserver = table.options.get("nameserver", settings.nameserver)
            kind = UpsertSink if connector == UPSERTS else TopicSink
            return kind(table.name, MessageMaker.of(table), nameserver, timeout_s=SEND_TIMEOUT_S)
        case connector:
            raise JobError("SINK_FAILED", f"The table {table.name} cannot be written: its connector is {connector!r}.")


def _print_sink(name: str, label: str, schema: Schema, on_rows: OnRows | None) -> PrintSink:
    if on_rows is None:
        return PrintSink(name, schema, None)
    show = on_rows

    def tell(columns: tuple[str, ...], rows: list[tuple[Any, ...]], kinds: list[int] | None) -> None:
        show(ResultRows(label, columns, rows, None if kinds is None else [RowKind(kind) for kind in kinds]))

    return PrintSink(name, schema, tell)


def local_directory(path: str) -> Path:
    """The directory of a path or a file: URL."""
    parts = urlparse(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in path:
        raise JobError("SINK_FAILED", f"{path!r} is no local directory.", remedy="Use a path or a file: URL.")
    return Path(path)
