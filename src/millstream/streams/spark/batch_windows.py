"""Windows of batch jobs on Spark's own grouping, which sums up on the way to the shuffle and spills to disks."""

from __future__ import annotations

from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.windows import Hop, Tumble
from millstream.streams.spark.expressions import aggregate, column_of
from millstream.streams.spark.rows import Rows

__all__ = ["batch_window"]

_WINDOW = "__window"


def batch_window(node: WindowAggregate, rows: Rows) -> Rows:
    """The rows of a tumbling or hopping window over rows that are all there."""
    window = node.window
    assert isinstance(window, Tumble | Hop)
    frame = rows.frame if rows.condition is None else rows.frame.where(rows.condition)
    slide_ms = window.slide_ms if isinstance(window, Hop) else window.size_ms
    bounds = F.window(
        rows.columns[window.time_column],
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
    return Rows(grouped, columns)
