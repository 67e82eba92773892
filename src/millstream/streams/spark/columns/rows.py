"""A relation during translation: a data frame, pending columns, and hidden ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = [
    "KEEP_COLUMN",
    "KIND_COLUMN",
    "QUEUE_COLUMN",
    "TICK_COLUMN",
    "WANTED_COLUMN",
    "Copies",
    "EventClock",
    "Rows",
    "Settled",
    "expand",
    "quoted_name",
    "settle",
]


TICK_COLUMN: Final = "__tick"
"""NULL in every row of data. A row that has it is none: it moves event time there."""

QUEUE_COLUMN: Final = "__queue"
"""The queue that a source's row comes from, as `broker/queue id`; only where operators of ours need it."""

KIND_COLUMN: Final = "__kind"
"""What a row says, as the number of its `RowKind`; only in relations whose rows change."""

WANTED_COLUMN: Final = "__wanted"
"""The numbers of the branches that want a row, where the source judges their conditions; it is empty for none."""


@dataclass(frozen=True)
class EventClock:
    """How the rows of a data frame move event time for operators of ours, each as a column.

    `source` is the number of what gave the row; `time_us` its event time less the delay, NULL where it moves nothing;
    `tick_us` the time of a row that is a tick. `sources` are all numbers that occur, `timed` those of tables whose
    rows should have an event time.
    """

    source: Column
    queue: Column
    time_us: Column
    tick_us: Column
    sources: frozenset[int]
    timed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Copies:
    """Several rows in the place of each: one for every element of the array `each`, with the columns made of it."""

    each: Column
    columns: Callable[[Column], Mapping[str, Column]]


@dataclass(frozen=True)
class Rows:
    """Rows of `frame` for which `condition` holds (None: all), with `columns` by name.

    `clock` tells operators of ours the time; None where none of them stands above. `kind` is the row kind; None
    where all rows are inserts. With `copies` each row stands for several, whose columns are theirs.
    """

    frame: DataFrame
    columns: Mapping[str, Column]
    condition: Column | None = None
    clock: EventClock | None = None
    kind: Column | None = None
    copies: Copies | None = None

    def where(self, condition: Column) -> Rows:
        """The rows for which `condition` holds as well."""
        both = condition if self.condition is None else self.condition & condition
        return replace(self, condition=both)

    def filtered_frame(self) -> DataFrame:
        """The data frame with only the rows for which `condition` holds."""
        return self.frame if self.condition is None else self.frame.where(self.condition)

    def with_columns(self, columns: Mapping[str, Column]) -> Rows:
        """The same rows with other columns."""
        return replace(self, columns=columns)


def quoted_name(name: str) -> str:
    """A column name as Spark reads it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


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
