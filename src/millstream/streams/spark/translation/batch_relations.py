"""Joins, aggregations and windows of batch jobs with Spark's own operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from millstream.streams.plan.aggregates import Aggregate, WindowAggregate
from millstream.streams.plan.joins import Join, JoinKind
from millstream.streams.plan.nodes import scans_of
from millstream.streams.plan.windows import Hop, Tumble
from millstream.streams.spark.columns.rows import Rows
from millstream.streams.spark.translation.expressions import aggregate, column_of

__all__ = ["UntimedRows", "batch_aggregation", "batch_join", "batch_window"]


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


_HOW: Final = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left_outer",
    JoinKind.RIGHT: "right_outer",
    JoinKind.FULL: "full_outer",
    JoinKind.SEMI: "left_semi",
    JoinKind.ANTI: "left_anti",
}


def batch_join(node: Join, left: Rows, right: Rows) -> Rows:
    """The pairs of two relations whose rows are all there and are inserts."""
    ours, theirs = node.left.schema.names, node.right.schema.names
    left_frame, right_frame = _select_columns(left, ours, "l"), _select_columns(right, theirs, "r")
    named = {name: F.col(f"l{number}") for number, name in enumerate(ours)}
    named |= {name: F.col(f"r{number}") for number, name in enumerate(theirs)}
    holds = [named[one] == named[other] for one, other in node.keys]
    if node.condition is not None:
        holds.append(column_of(node.condition, named))
    how = _HOW[node.kind]
    if not holds and node.kind is JoinKind.INNER:
        joined = left_frame.crossJoin(right_frame)
    else:
        joined = left_frame.join(right_frame, reduce(and_, holds) if holds else F.lit(True), how)
    return Rows(joined, {name: named[name] for name in node.schema.names})


def batch_aggregation(node: Aggregate, rows: Rows) -> Rows:
    """One row for each key of a relation whose rows are all there and are inserts."""
    frame = rows.filtered_frame()
    keys = [column_of(key, rows.columns).alias(f"k{number}") for number, (_, key) in enumerate(node.keys)]
    calls = [aggregate(call, rows.columns).alias(f"a{number}") for number, (_, call) in enumerate(node.aggregates)]
    grouped = frame.groupBy(*keys).agg(*calls) if calls else frame.select(*keys).distinct()
    columns = {name: F.col(f"k{number}") for number, (name, _) in enumerate(node.keys)}
    columns |= {name: F.col(f"a{number}") for number, (name, _) in enumerate(node.aggregates)}
    return Rows(grouped, columns)


def _select_columns(rows: Rows, names: Sequence[str], prefix: str) -> DataFrame:
    """The rows with their columns under names that the other side of a join has not."""
    columns: list[Column] = [rows.columns[name].alias(f"{prefix}{number}") for number, name in enumerate(names)]
    # A side of which no column is read still has rows.
    return rows.filtered_frame().select(*(columns or [F.lit(True).alias(prefix)]))
