"""A relation while it is translated: a data frame and columns over it that are not selected yet.

Projections and filters above one read only compose columns, so that several queries over one topic can share one
pass over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame

__all__ = ["Copies", "EventClock", "Rows", "quoted_name"]


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
