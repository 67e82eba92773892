"""Nodes that depend on row order: ranks, OVER, and sorted or limited results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.streams.plan.aggregates import AggregateCall
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import BIGINT, Field, Schema

__all__ = ["Frame", "OrderKey", "Over", "OverCall", "Rank", "Sort"]


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One column of an ORDER BY. In Flink NULL is the smallest value, unless `nulls_first` says otherwise."""

    column: str
    ascending: bool = True
    nulls_first: bool | None = None

    @property
    def has_nulls_first(self) -> bool:
        """Whether NULL comes before all values."""
        return self.ascending if self.nulls_first is None else self.nulls_first

    def __str__(self) -> str:
        nulls = "" if self.nulls_first is None else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        return f"{self.column} {'ASC' if self.ascending else 'DESC'}{nulls}"


@dataclass(frozen=True, slots=True)
class Rank(Node):
    """The rows whose place in their partition is `first` to `last`, as places change: Top-N and deduplication.

    `rank_name` adds the place as BIGINT; without it rows only come and go. `window_end` names the attached window's
    end where the partition is one of a window: places are final then and each is emitted once, at the window's end.
    The first row by event time alone, of rows that are only appended, is emitted once, when the watermark comes to it.
    ROW_NUMBER breaks ties by arrival, the earlier first; by a processing-time order key the arrival itself counts, and
    where the last row by event time alone is kept of rows that are only appended, the later of equal times is it.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[OrderKey, ...]
    last: int
    first: int = 1
    function: Literal["ROW_NUMBER", "RANK", "DENSE_RANK"] = "ROW_NUMBER"
    rank_name: str | None = None
    window_end: str | None = None

    @property
    def schema(self) -> Schema:
        added = () if self.rank_name is None else (Field(self.rank_name, BIGINT.as_nullable(False)),)
        return Schema((*self.input.schema.fields, *added))


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows that an OVER looks at: `preceding` before the row up to it; None is from the beginning.

    `unit` "rows" counts rows; "range" milliseconds of the time attribute, and takes in all rows of the same time. Where
    a partition is looked at whole, `following` is how far it reaches behind the row (None: to the end), and a negative
    number keeps away from the row; a range over numbers counts in them.
    """

    unit: Literal["rows", "range"] = "range"
    preceding: int | None = None
    following: int | None = 0


@dataclass(frozen=True, slots=True)
class OverCall:
    """One result of an OVER: an aggregate over the frame, or a function of the place (ROW_NUMBER, LAG, ...)."""

    name: str
    call: AggregateCall


@dataclass(frozen=True, slots=True)
class Over(Node):
    """Each row with aggregates over the rows of its partition before it, emitted in the order of time.

    `order` begins with a time attribute, ascending. Over event time rows wait for the watermark. Where it is another
    time, whose rows come in any order, or the input changes, results change as rows come. In a batch job `whole` looks
    at partitions at the end, in any order or none.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[OrderKey, ...]
    frame: Frame
    calls: tuple[OverCall, ...]
    whole: bool = False

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *(Field(over.name, over.call.type) for over in self.calls)))


@dataclass(frozen=True, slots=True)
class Sort(Node):
    """The rows in order, `offset` of them left out and then at most `limit` kept.

    Over a stream `order` begins with a time attribute, ascending, or is blank, or there is a `limit`: then the result
    changes as rows come.
    """

    input: Node
    order: tuple[OrderKey, ...]
    limit: int | None = None
    offset: int = 0

    @property
    def schema(self) -> Schema:
        return self.input.schema
