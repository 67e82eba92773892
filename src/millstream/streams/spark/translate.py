"""Nodes of the plan over a source's data frame."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, Tumble, WindowAggregate, WindowRows, inputs_of
from millstream.streams.plan.tables import ComputedColumn, Table
from millstream.streams.spark.expressions import aggregate, column_of
from millstream.streams.spark.rows import Rows, quoted_name
from millstream.streams.spark.source.spec import TICK_COLUMN

__all__ = ["is_windowed", "translate"]

_EVENT_TIME = "__event_time"
_WINDOW = "__window"
_SIGN_BIT = 63


def is_windowed(node: Node) -> bool:
    """Whether the node keeps state over time."""
    return isinstance(node, WindowAggregate) or any(is_windowed(below) for below in inputs_of(node))


def translate(node: Node, source: DataFrame) -> Rows:
    """The rows of `node`, whose one scan is read from `source` (the scan's columns and the hidden tick).

    Without a window the result stands on `source` itself. Ticks are not among the rows.
    """
    return _translate(node, source, with_watermark=is_windowed(node))


def _translate(node: Node, source: DataFrame, *, with_watermark: bool) -> Rows:
    if isinstance(node, Scan):
        return _scan(node, source, with_watermark=with_watermark)
    rows = _translate(inputs_of(node)[0], source, with_watermark=with_watermark)
    match node:
        case Project():
            return _project(node, rows)
        case Filter(predicate=predicate):
            return rows.where(column_of(predicate, rows.columns))
        case WindowRows(window=Tumble() as window):
            return _window_rows(rows, window)
        case WindowAggregate(window=Tumble() as window):
            return _window_aggregate(node, window, rows)
        case _:
            raise JobError("JOB_FAILED", f"{type(node).__name__} has no translation.")


def _scan(node: Scan, source: DataFrame, *, with_watermark: bool) -> Rows:
    table = node.table
    columns = {name: F.col(quoted_name(name)) for name in source.columns if name != TICK_COLUMN}
    tick = F.col(TICK_COLUMN)
    for column in table.columns:
        if isinstance(column, ComputedColumn) and column.name in node.columns:
            columns[column.name] = column_of(column.expression, columns)
    if not with_watermark:
        return Rows(source, columns, tick.isNull())
    if table.watermark is None:
        raise JobError("JOB_FAILED", f"The table {table.name} has no watermark to stand a window on.")
    return _with_watermark(table, source, columns)


def _with_watermark(table: Table, source: DataFrame, columns: dict[str, SparkColumn]) -> Rows:
    watermark = table.watermark
    assert watermark is not None
    event_time = F.coalesce(F.col(TICK_COLUMN), columns[watermark.column])
    frame = source.withColumn(_EVENT_TIME, event_time).withWatermark(_EVENT_TIME, f"{watermark.delay_ms} milliseconds")
    attribute = F.col(_EVENT_TIME)
    named = {**columns, watermark.column: attribute}
    return Rows(frame, named, F.col(TICK_COLUMN).isNull(), {watermark.column: attribute})


def _project(node: Project, rows: Rows) -> Rows:
    columns = {name: column_of(expression, rows.columns) for name, expression in node.columns}
    event_times = {
        name: rows.event_times[expression.name]
        for name, expression in node.columns
        if isinstance(expression, Column) and expression.name in rows.event_times
    }
    return Rows(rows.frame, columns, rows.condition, event_times)


def _window_rows(rows: Rows, window: Tumble) -> Rows:
    millis = F.unix_millis(rows.columns[window.time_column])
    start = millis - F.pmod(millis - window.offset_ms, F.lit(window.size_ms))
    added = {
        "window_start": F.timestamp_millis(start),
        "window_end": F.timestamp_millis(start + window.size_ms),
        "window_time": F.timestamp_millis(start + window.size_ms - 1),
    }
    return Rows(rows.frame, {**rows.columns, **added}, rows.condition, rows.event_times)


def _window_aggregate(node: WindowAggregate, window: Tumble, rows: Rows) -> Rows:
    time = rows.event_times.get(window.time_column)
    if time is None:
        raise JobError("JOB_FAILED", f"{window.time_column} is no event time that a window can stand on.")
    frame = rows.frame if rows.condition is None else rows.frame.where(_held_above(rows.condition, time))
    bounds = F.window(
        time, f"{window.size_ms} milliseconds", None, f"{window.offset_ms % window.size_ms} milliseconds"
    ).alias(_WINDOW)
    keys = [column_of(key, rows.columns).alias(f"k{number}") for number, (_, key) in enumerate(node.keys)]
    calls = [aggregate(call, rows.columns).alias(f"a{number}") for number, (_, call) in enumerate(node.aggregates)]
    # Spark wants an aggregate; a query that only lists windows and keys has none.
    grouped = frame.groupBy(bounds, *keys).agg(*(calls or [F.count(F.lit(1)).alias("a0")]))
    columns = {name: F.col(f"k{number}") for number, (name, _) in enumerate(node.keys)}
    columns |= {name: F.col(f"a{number}") for number, (name, _) in enumerate(node.aggregates)}
    end = F.col(f"{_WINDOW}.end")
    columns |= {
        "window_start": F.col(f"{_WINDOW}.start"),
        "window_end": end,
        "window_time": F.timestamp_millis(F.unix_millis(end) - 1),
    }
    return Rows(grouped, columns, None, {"window_time": F.window_time(F.col(_WINDOW))})


def _held_above(condition: SparkColumn, event_time: SparkColumn) -> SparkColumn:
    """`condition` in a form that Spark does not push below the watermark.

    Spark moves each filter that does not name the event time below the watermark node: ticks, and the rows that a
    WHERE drops, would then not move event time, which in Flink they do. The sign of the event time is at most 1 off
    in the sum and never decides.
    """
    holds = F.coalesce(condition, F.lit(False)).cast("bigint")
    return holds * 2 + F.shiftright(F.unix_micros(event_time), _SIGN_BIT) > 0
