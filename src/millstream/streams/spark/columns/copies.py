"""Relations whose columns are selected: what an explode or a union needs, with the hidden columns kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.spark.columns.hidden import KIND_COLUMN
from millstream.streams.spark.columns.rows import EventClock, Rows, quoted_name

__all__ = ["KEEP_COLUMN", "Settled", "expand", "settle"]

KEEP_COLUMN: Final = "__keep"
"""Whether a row of a settled relation is among its rows; others may still move event time."""

_SOURCE, _QUEUE, _TIME, _TICK, _EACH = "__source", "__clock_queue", "__time_us", "__tick_us", "__each"


@dataclass(frozen=True)
class Settled:
    """A relation whose data frame has exactly the columns `names` and the hidden ones."""

    rows: Rows
    names: tuple[str, ...]

    def over(self, frame: DataFrame, parts: Sequence[Rows]) -> Rows:
        """The same columns of another data frame, made of `parts`."""
        clocks = [part.clock for part in parts if part.clock is not None]
        changes = any(part.kind is not None for part in parts)
        return _over(frame, self.names, clocks, changes=changes)


def settle(rows: Rows, names: Sequence[str], targets: Sequence[str]) -> Settled:
    """The columns `names` of `rows` under the names `targets`, and the hidden columns."""
    chosen = [rows.columns[name].alias(target) for name, target in zip(names, targets, strict=True)]
    frame = rows.frame.select(*chosen, *_hidden_columns(rows))
    clocks = [] if rows.clock is None else [rows.clock]
    return Settled(_over(frame, tuple(targets), clocks, changes=rows.kind is not None), tuple(targets))


def expand(rows: Rows, each: Column, columns: Callable[[Column], Mapping[str, Column]], *, outer: bool = False) -> Rows:
    """Each row once for every element of the array `each`, with the columns made of it.

    A row that only moves event time stays one row. With `outer` a row without elements stays, with a NULL element.
    """
    condition = F.lit(True) if rows.condition is None else F.coalesce(rows.condition, F.lit(False))
    elements = F.when(condition, each)
    kept = F.explode_outer(elements)
    names = tuple(rows.columns)
    frame = rows.frame.select(
        *(rows.columns[name].alias(name) for name in names), *_hidden_columns(rows), kept.alias(_EACH)
    )
    clocks = [] if rows.clock is None else [rows.clock]
    copied = _over(frame, names, clocks, changes=rows.kind is not None)
    element = F.col(_EACH)
    found = copied if outer else copied.where(element.isNotNull())
    return found.with_columns({**copied.columns, **columns(element)})


def _hidden_columns(rows: Rows) -> list[Column]:
    clock = rows.clock
    keep = F.lit(True) if rows.condition is None else F.coalesce(rows.condition, F.lit(False))
    kind = F.lit(None) if rows.kind is None else rows.kind
    hidden = [keep.alias(KEEP_COLUMN), kind.cast("tinyint").alias(KIND_COLUMN)]
    if clock is not None:
        hidden += [
            clock.source.alias(_SOURCE), clock.queue.alias(_QUEUE),
            clock.time_us.alias(_TIME), clock.tick_us.alias(_TICK),
        ]  # fmt: skip
    return hidden


def _over(frame: DataFrame, names: Sequence[str], clocks: Sequence[EventClock], *, changes: bool) -> Rows:
    clock = None
    if clocks:
        sources = frozenset(number for one in clocks for number in one.sources)
        timed = frozenset(number for one in clocks for number in one.timed)
        clock = EventClock(F.col(_SOURCE), F.col(_QUEUE), F.col(_TIME), F.col(_TICK), sources, timed)
    columns = {name: F.col(quoted_name(name)) for name in names}
    kind = F.col(KIND_COLUMN) if changes else None
    return Rows(frame, columns, F.col(KEEP_COLUMN), clock=clock, kind=kind)
