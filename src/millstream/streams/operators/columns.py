"""Rows by column: what operators read that look at whole columns at once, and rows that they pass on that way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np

__all__ = [
    "LARGEST",
    "ColumnRows",
    "Flags",
    "Keys",
    "Longs",
    "Numbers",
    "SelectedRows",
    "first_of_each",
    "starts_of",
    "to_list",
]

Longs = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

FEWEST = 64
"""Rows of a micro-batch and bucket from which on columns are faster than rows."""

LARGEST = 2**62
"""Results that are computed by column stay below, so that they are exact in 64 bits; what may be larger is computed by
row."""


class Numbers(NamedTuple):
    """A column of whole numbers or times. `known` is false where it is NULL and `values` 0; None: it is nowhere."""

    values: Longs
    known: Flags | None = None

    def at(self, places: Longs | slice) -> Numbers:
        """The column at these places."""
        return Numbers(self.values[places], None if self.known is None else self.known[places])


class Keys(NamedTuple):
    """For each row the place of its key in `keys`, which are as in `row_key`, each once."""

    places: Longs
    keys: list[Hashable]


class ColumnRows(Sequence[tuple[Any, ...]]):
    """Rows that lie in columns; tuples are made of them when an operator looks at rows."""

    @property
    def are_many(self) -> bool:
        """Whether there are as many as columns pay off for."""
        return len(self) >= FEWEST

    @abstractmethod
    def numbers(self, place: int) -> Numbers | None:
        """A column as 64-bit numbers, times and dates as in rows; None where its type is another one."""
        ...

    @abstractmethod
    def validity_of(self, place: int) -> Flags | None:
        """Where a column is not NULL; None where it is nowhere NULL."""
        ...

    @abstractmethod
    def keys(self, places: Sequence[int]) -> Keys | None:
        """The keys of the rows by the columns at `places`; None where only rows tell which are equal."""
        ...

    @abstractmethod
    def at(self, places: Longs) -> list[tuple[Any, ...]]:
        """Single rows, in the order of `places`."""
        ...

    @abstractmethod
    def to_rows(self) -> list[tuple[Any, ...]]:
        """All rows, made once."""
        ...

    @overload
    def __getitem__(self, place: int) -> tuple[Any, ...]: ...

    @overload
    def __getitem__(self, place: slice) -> list[tuple[Any, ...]]: ...

    def __getitem__(self, place: int | slice) -> tuple[Any, ...] | list[tuple[Any, ...]]:
        return self.to_rows()[place]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.to_rows())


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """Rows that come: the first `width` columns of `rows` at `places`, behind them `columns`, of one number a place.

    Places from the number of `rows` on are those of `more`.
    """

    rows: ColumnRows
    more: Sequence[tuple[Any, ...]]
    places: Longs
    width: int
    columns: tuple[Numbers, ...]

    def to_rows(self) -> list[tuple[Any, ...]]:
        """The rows as tuples."""
        every = [*self.rows, *self.more]
        told = [to_list(one) for one in self.columns]
        return [
            (*every[place][: self.width], *results) for place, *results in zip(self.places.tolist(), *told, strict=True)
        ]


def numbers_of(rows: Sequence[tuple[Any, ...]], place: int) -> Numbers:
    """A column of rows that are tuples."""
    values = [row[place] for row in rows]
    if None not in values:
        return Numbers(np.array(values, np.int64))
    known = np.array([value is not None for value in values])
    return Numbers(np.array([value or 0 for value in values], np.int64), known)


def marks_of(rows: Sequence[tuple[Any, ...]], place: int) -> Numbers:
    """Where a column of rows that are tuples is NULL, without its values."""
    return Numbers(np.zeros(len(rows), np.int64), np.array([row[place] is not None for row in rows], np.bool_))


def concatenate(parts: Sequence[Numbers]) -> Numbers:
    """One column of several."""
    values = np.concatenate([part.values for part in parts])
    if all(part.known is None for part in parts):
        return Numbers(values)
    known = [np.ones(len(part.values), np.bool_) if part.known is None else part.known for part in parts]
    return Numbers(values, np.concatenate(known))


def to_list(numbers: Numbers) -> list[int | None]:
    """The values of a column for Python, None for NULL."""
    values: list[int | None] = numbers.values.tolist()
    if numbers.known is not None:
        for place in np.flatnonzero(~numbers.known).tolist():
            values[place] = None
    return values


def starts_of(keys: Longs) -> Longs:
    """Where runs of equal numbers begin."""
    return np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else np.zeros(0, np.int64)


def first_of_each(keys: Longs, values: Longs, places: Longs, count: int, *, newest_first: bool) -> Longs:
    """Of the rows at `places` the `count` first of each key by value, in the order of `places`.

    Of equal values the earlier row stands first, or with `newest_first` the later one.
    """
    if newest_first:
        places = places[::-1]
    by_key = places[np.lexsort((values[places], keys[places]))]
    starts = starts_of(keys[by_key])
    rank = np.arange(len(by_key)) - np.repeat(starts, np.diff(np.append(starts, len(by_key))))
    return np.sort(by_key[rank < count])
