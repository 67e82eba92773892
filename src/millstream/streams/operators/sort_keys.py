"""Sort keys of rows in SQL's order: by several columns, up or down, with NULL first or last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.streams.operators.changes import Row

__all__ = ["IS_VALUE", "OrderColumn", "sort_key"]

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
