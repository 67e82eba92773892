"""The base of stateful operators: rows and times of a micro-batch, changes, state and timers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, Protocol

from millstream.streams.operators.columns import SelectedRows
from millstream.streams.operators.state import OperatorState

__all__ = [
    "DELETE",
    "END_OF_TIME_US",
    "INSERT",
    "START_OF_TIME_US",
    "UPDATE_AFTER",
    "UPDATE_BEFORE",
    "BatchTimes",
    "Changes",
    "Operator",
    "OperatorOutput",
    "Row",
]


Row = tuple[Any, ...]

INSERT: Final = 0
UPDATE_BEFORE: Final = 1
UPDATE_AFTER: Final = 2
DELETE: Final = 3
"""The numbers of `millstream.streams.plan.changelog.RowKind`, as plain ones for loops over rows."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows in their order. `kinds` has one number a row; None: all are inserts. Rows may be `ColumnRows`."""

    rows: Sequence[Row]
    kinds: Sequence[int] | None = None

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        """Kind and row of each."""
        if self.kinds is None:
            return zip(repeat(INSERT), self.rows, strict=False)
        return zip(self.kinds, self.rows, strict=True)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class OperatorOutput:
    """What an operator says in one turn."""

    rows: list[Row] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    late: list[tuple[int, Row]] = field(default_factory=list)
    """Rows that came behind the watermark and were left out, each with the number of its input."""
    by_column: list[SelectedRows] = field(default_factory=list)
    """More rows that come, by column; they stand for no order beside `rows`."""

    def emit(self, kind: int, row: Row) -> None:
        """Say that `row` comes, goes or changes."""
        self.kinds.append(kind)
        self.rows.append(row)

    def insert(self, row: Row) -> None:
        """Say that `row` comes."""
        self.kinds.append(INSERT)
        self.rows.append(row)

    def update(self, before: Row | None, after: Row | None) -> None:
        """Say how one row changes; None is no row. Equal rows say nothing."""
        if before is None:
            if after is not None:
                self.emit(INSERT, after)
        elif after is None:
            self.emit(DELETE, before)
        elif before != after:
            self.emit(UPDATE_BEFORE, before)
            self.emit(UPDATE_AFTER, after)

    def changes(self) -> Changes:
        """Everything said: what is by row in its order, then what is by column."""
        more = [row for taken in self.by_column for row in taken.to_rows()]
        return Changes([*self.rows, *more], [*self.kinds, *[INSERT] * len(more)])


START_OF_TIME_US: Final = -(2**63)
"""The watermark before anything is known."""

END_OF_TIME_US: Final = 2**63 - 1
"""The watermark when a bounded run has read everything: no row comes any more."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The times of a micro-batch, in microseconds since 1970; equal in every key group and at every replay.

    A row with an event time at or before `watermark_before_us` is late. After the rows, event time has come to
    `watermark_us`: what ends at or before it is final. `now_us` is the processing time of the whole turn.
    """

    watermark_before_us: int = START_OF_TIME_US
    watermark_us: int = START_OF_TIME_US
    now_us: int = 0

    @property
    def is_last(self) -> bool:
        """Whether nothing comes after this turn."""
        return self.watermark_us >= END_OF_TIME_US


class Operator(Protocol):
    """One operator in one key group. Instances are made from a plan node's plain values and hold no rows of their own:
    everything that has to outlive a turn is in the tables and timers that `open` takes from its state.

    A turn is `process` once per input that has rows, in the order of the inputs, then `advance`. Both are functions
    of their arguments and of the state alone: a replay of the same turn on the same state says the same. (State that
    was restored may hold its keys in another order; what is said of different keys may then be too.)
    """

    def open(self, state: OperatorState) -> None:
        """Take the tables and timers; called once, before they are filled and before any turn."""
        ...

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take the rows of input `number`, which counts from 0."""
        ...

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Say what is final now: the watermark has come to `turn.watermark_us`."""
        ...
