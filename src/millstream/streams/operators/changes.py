"""Changed rows as operators take and give them: plain tuples, and beside them what each row says.

The values of a row: TIMESTAMP in microseconds since 1970, DATE in days, TIME in milliseconds of the day, INTERVAL in
microseconds or months, DECIMAL as `decimal.Decimal`, ARRAY a list, MAP a list of pairs, ROW a dict, NULL None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

from millstream.streams.operators.columns import SelectedRows

__all__ = ["DELETE", "INSERT", "UPDATE_AFTER", "UPDATE_BEFORE", "Changes", "OperatorOutput", "Row"]

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
