"""A table cut into parts by ranges of a column, which can be read at one time."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.databases.database import Database

__all__ = ["TableParts"]


@dataclass(frozen=True, slots=True)
class TableParts:
    """`count` ranges of equal width from `lower` to `upper` of a column of whole numbers; blank: one part, all rows.

    The bounds cut, they leave nothing out: the first part has also what lies before them, and NULL, the last one what
    lies behind them.
    """

    column: str = ""
    count: int = 1
    lower: int = 0
    upper: int = 0

    @classmethod
    def of(cls, column: str, count: int, lower: int, upper: int) -> TableParts:
        """The parts; no more than there are whole numbers between the bounds. Raises ValueError where these are not."""
        if upper < lower:
            raise ValueError(f"{lower} is above {upper}")
        return cls(column, min(count, upper - lower + 1), lower, upper)

    def condition(self, database: Database, number: int) -> tuple[str, tuple[int, ...]]:
        """SQL that holds for the rows of a part, with its values; blank for all rows."""
        if self.count == 1:
            return "", ()
        name = database.name(self.column)
        start, end = self._start(number), self._start(number + 1)
        if number == 0:
            return f"({name} < {database.mark} OR {name} IS NULL)", (end,)
        if number == self.count - 1:
            return f"{name} >= {database.mark}", (start,)
        return f"{name} >= {database.mark} AND {name} < {database.mark}", (start, end)

    def _start(self, number: int) -> int:
        return self.lower + (self.upper - self.lower + 1) * number // self.count
