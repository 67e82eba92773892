"""Windows of batch jobs on Spark's own grouping, which sums up on the way to the shuffle and spills to disks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.nodes import scans_of
from millstream.streams.plan.windows import Hop, Tumble
from millstream.streams.spark.columns.rows import Rows
from millstream.streams.spark.translation.expressions import aggregate, column_of

__all__ = ["UntimedRows", "batch_window"]

_WINDOW = "__window"

_EVENTS_MS = 10_000
"""How long Spark may take to hand out the events of a batch that is over; then counts are missing."""


class UntimedRows:
    """Counts the rows without event time that windows of a batch get: no such window takes them in."""

    def __init__(self) -> None:
        self._observed: list[tuple[str, Observation]] = []
        self._spark: SparkSession | None = None

    def observe(self, frame: DataFrame, event_time: Column, tables: str) -> DataFrame:
        """The same rows, counted while they pass. `tables` names where they come from."""
        observation = Observation()
        self._observed.append((tables, observation))
        self._spark = frame.sparkSession
        return frame.observe(observation, F.count_if(event_time.isNull()).alias("rows"))

    def counts(self) -> Mapping[str, int]:
        """The counts by tables, once the batch is over: as many as one window got at most."""
        found: dict[str, int] = {}
        if self._spark is not None:
            # Observations come with the events of Spark, behind the end of the action.
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_EVENTS_MS)
        for tables, observation in self._observed:
            if count := _observed_count(observation):
                found[tables] = max(count, found.get(tables, 0))
        return found


def _observed_count(observation: Observation) -> int:
    """0 as well where Spark has left the window out of its plan; `Observation.get` would raise or wait for ever."""
    java: Any = observation._jo
    observed = java.future()
    if not observed.isCompleted():
        return 0
    row = observed.value().get().get()
    return int(row.getLong(0)) if row.size() else 0


def batch_window(node: WindowAggregate, rows: Rows, untimed: UntimedRows) -> Rows:
    """The rows of a tumbling or hopping window over rows that are all there; those without a time are counted."""
    window = node.window
    assert isinstance(window, Tumble | Hop)
    frame = rows.filtered_frame()
    tables = "+".join(dict.fromkeys(scan.table.name for scan in scans_of(node)))
    frame = untimed.observe(frame, rows.columns[window.time_column], tables)
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
