"""A plan as text: one line a node, the sink first, inputs below and indented."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.streams.plan.nodes import Filter, Node, Project, Scan, Sink, WindowAggregate, WindowRows, inputs_of
from millstream.streams.plan.types import Schema

__all__ = ["explain_node", "explain_sink"]


def explain_sink(sink: Sink) -> list[str]:
    """The lines of an INSERT."""
    return [f"Sink {sink.table.name} ({sink.table.connector})", *(f"  {line}" for line in explain_node(sink.input))]


def explain_node(node: Node) -> list[str]:
    """The lines of a query."""
    return list(_lines(node))


def _lines(node: Node) -> Iterator[str]:
    match node:
        case Scan(table=table):
            yield f"Scan {table.name} ({table.connector}) columns=[{_columns(node.schema)}]"
            if table.watermark is not None and table.watermark.column in node.columns:
                yield f"  watermark {table.watermark.column} - {table.watermark.delay_ms} ms"
            return
        case Project(columns=columns):
            shown = ", ".join(name if str(value) == name else f"{value} AS {name}" for name, value in columns)
            yield f"Project [{shown}]"
        case Filter(predicate=predicate):
            yield f"Filter {predicate}"
        case WindowRows(window=window):
            yield f"WindowRows {window}"
        case WindowAggregate(window=window, keys=keys, aggregates=aggregates):
            shown_keys = ", ".join(name if str(value) == name else f"{value} AS {name}" for name, value in keys)
            calls = ", ".join(f"{call} AS {name}" for name, call in aggregates)
            yield f"WindowAggregate {window} keys=[{shown_keys}] aggregates=[{calls}]"
        case _:
            yield type(node).__name__
    for below in inputs_of(node):
        for line in _lines(below):
            yield f"  {line}"


def _columns(schema: Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{' *ROWTIME*' if field.rowtime else ''}" for field in schema.fields)
