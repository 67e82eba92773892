"""The part of plans that runs on Spark's own stateful operators: one window over rows that are only appended."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.errors import JobError
from millstream.streams.plan.backends import Backend, backend_of
from millstream.streams.plan.nodes import Node, WindowAggregate
from millstream.streams.plan.tables import Table
from millstream.streams.plan.windows import Hop, Tumble
from millstream.streams.spark.expressions import aggregate, column_of
from millstream.streams.spark.hidden import TICK_COLUMN
from millstream.streams.spark.rows import Rows

__all__ = ["is_native", "native_window", "watermarked"]

_EVENT_TIME = "__event_time"
_WINDOW = "__window"
_SIGN_BIT = 63


def is_native(node: Node) -> bool:
    """Whether `node` is a window aggregate that Spark does as Flink does, with nothing stateful below it."""
    return backend_of(node) is Backend.SPARK


def watermarked(table: Table, source: DataFrame, columns: Mapping[str, SparkColumn]) -> Rows:
    """The rows of a read with Spark's own watermark. Ticks are not among the rows."""
    watermark = table.watermark
    if watermark is None:
        raise JobError("JOB_FAILED", f"The table {table.name} has no watermark to stand a window on.")
    # A tick that moves nothing itself may bring the event time of rows that a source left out.
    event_time = F.greatest(F.col(TICK_COLUMN), columns[watermark.column])
    frame = source.withColumn(_EVENT_TIME, event_time).withWatermark(_EVENT_TIME, f"{watermark.delay_ms} milliseconds")
    attribute = F.col(_EVENT_TIME)
    named = {**columns, watermark.column: attribute}
    return Rows(frame, named, F.col(TICK_COLUMN).isNull(), {watermark.column: attribute})


def native_window(node: WindowAggregate, rows: Rows) -> Rows:
    """The rows of a tumbling or hopping window, each when Spark's watermark has passed its end."""
    window = node.window
    assert isinstance(window, Tumble | Hop)
    time = rows.event_times.get(window.time_column)
    if time is None:
        raise JobError("JOB_FAILED", f"{window.time_column} is no event time that a window can stand on.")
    frame = rows.frame if rows.condition is None else rows.frame.where(_held_above(rows.condition, time))
    slide_ms = window.slide_ms if isinstance(window, Hop) else window.size_ms
    bounds = F.window(
        time,
        f"{window.size_ms} milliseconds",
        f"{slide_ms} milliseconds",
        f"{window.offset_ms % slide_ms} milliseconds",
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
