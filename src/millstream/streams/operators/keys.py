"""Key extraction from rows, and sort keys in SQL's order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.operator import Row

__all__ = ["IS_VALUE", "OrderColumn", "frozen", "row_key", "rows_by_key", "sort_key"]


RowKey = Callable[[Row], Any]
"""From a row to its key: the value of one column itself, of several a tuple."""


def frozen(row: Row) -> Row:
    """The whole row as a key: itself, or with what is in its lists and ROWs where it has such."""
    try:
        hash(row)
    except TypeError:
        return tuple(map(hashable, row))
    return row


def row_key(places: Sequence[int]) -> RowKey:
    """The key of rows by the columns at `places`; without any all rows have the same."""
    if not places:
        return lambda _row: ()
    return itemgetter(*places)


def rows_by_key(rows: Sequence[Row], key: RowKey) -> dict[Hashable, list[Row]]:
    """The rows of each key in their order. Lists and ROWs of a key count by what is in them."""
    found: dict[Hashable, list[Row]] = {}
    grouped = found.setdefault
    try:
        for of, row in zip(map(key, rows), rows, strict=True):
            grouped(of, []).append(row)
    except TypeError:
        found.clear()
        for row in rows:
            of = key(row)
            grouped(tuple(map(hashable, of)) if isinstance(of, tuple) else hashable(of), []).append(row)
    return found


IS_VALUE: Final = 1
"""What stands in a column's key before a value, between those of a NULL that sorts first and one that sorts last."""


@dataclass(frozen=True, slots=True)
class OrderColumn:
    """One column of an ORDER BY, by its place in a row."""

    place: int
    ascending: bool = True
    nulls_first: bool = True


class _Reversed:
    """A value that sorts the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(other.value == self.value)

    def __hash__(self) -> int:
        return hash(self.value)


def sort_key(order: Sequence[OrderColumn]) -> Callable[[Row], Any]:
    """A function from a row to what it is sorted by; keys compare with <, and are equal for equal rows."""
    if not order:
        return lambda row: ()
    parts = [_part(one) for one in order]
    if len(parts) == 1:
        return parts[0]
    return lambda row: tuple(part(row) for part in parts)


def _part(one: OrderColumn) -> Callable[[Row], Any]:
    place, ascending = one.place, one.ascending
    null = (0 if one.nulls_first else 2, 0)

    def up(row: Row) -> Any:
        value = row[place]
        return null if value is None else (IS_VALUE, value)

    def down(row: Row) -> Any:
        value = row[place]
        if value is None:
            return null
        # A number turned round compares in C; only other values need the slower form.
        return (IS_VALUE, -value) if isinstance(value, int) else (IS_VALUE, _Reversed(value))

    return up if ascending else down
