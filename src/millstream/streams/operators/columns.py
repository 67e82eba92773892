"""Column access to rows, for vectorized operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np

__all__ = [
    "LARGEST",
    "ColumnRows",
    "Flags",
    "KeyedColumns",
    "Keys",
    "Longs",
    "Numbers",
    "SelectedRows",
    "SortedColumns",
    "first_of_each",
    "sort_columns",
    "starts_of",
    "to_list",
]


Longs = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

FEWEST = 64
"""Rows of a micro-batch and key group from which on columns are faster than rows."""

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
        lists = [to_list(one) for one in self.columns]
        return [
            (*every[place][: self.width], *results)
            for place, *results in zip(self.places.tolist(), *lists, strict=True)
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


class KeyedColumns(NamedTuple):
    """Some rows by column: the place of each row's key, its time, and columns by their place in rows."""

    keys: Longs
    times: Longs
    columns: dict[int, Numbers]


@dataclass(frozen=True, slots=True)
class SortedColumns:
    """Rows in the order of their keys and times: those of `keys[n]` from `starts[n]` up to `ends[n]`.

    `order` says where each of them stood before; `groups` is the number of its key.
    """

    keys: list[Hashable]
    starts: Longs
    ends: Longs
    groups: Longs
    order: Longs
    times: Longs
    columns: dict[int, Numbers]
    _sums: dict[tuple[str, int], Longs] = field(default_factory=dict)

    def counts(self, place: int | None, first: Longs, stop: Longs) -> Longs:
        """How many rows from one up to another are not NULL in a column, or are there."""
        known = None if place is None else self.columns[place].known
        if place is None or known is None:
            return stop - first
        return self._between("known", place, known, first, stop)

    def totals(self, place: int, first: Longs, stop: Longs) -> Longs:
        """The sums of a column over the rows from one up to another."""
        return self._between("values", place, self.columns[place].values, first, stop)

    def _between(self, what: str, place: int, values: Longs | Flags, first: Longs, stop: Longs) -> Longs:
        sums = self._sums.get((what, place))
        if sums is None:
            sums = self._sums[what, place] = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
        total: Longs = sums[stop] - sums[first]
        return total

    def peer_ends(self) -> Longs:
        """Behind which row those end that have the same key and time."""
        runs = np.concatenate(([True], (self.groups[1:] != self.groups[:-1]) | (self.times[1:] != self.times[:-1])))
        ends = np.append(np.flatnonzero(runs)[1:], len(runs))
        behind: Longs = ends[np.cumsum(runs) - 1]
        return behind

    def range_starts(self, preceding_us: int) -> Longs | None:
        """The first row of each row's key whose time is not more than that before; None for times too far apart."""
        earliest = int(self.times.min())
        span = int(self.times.max()) - earliest + preceding_us + 1
        if span * len(self.keys) >= LARGEST:
            return None
        places = self.groups * span + (self.times - earliest)
        first: Longs = np.searchsorted(places, places - preceding_us).astype(np.int64)
        return first

    def row_starts(self, preceding: int) -> Longs:
        """The row so many before each row, or the first of its key."""
        return np.maximum(np.arange(len(self.order)) - preceding, self.starts[self.groups])


def sort_columns(keys: Sequence[Hashable], parts: Sequence[KeyedColumns]) -> SortedColumns | None:
    """The rows of all parts, equal ones in this order; None where a sum might leave 64 bits."""
    places = np.concatenate([part.keys for part in parts])
    times = np.concatenate([part.times for part in parts])
    columns = {place: concatenate([part.columns[place] for part in parts]) for place in parts[0].columns}
    if any(_largest(one.values) * len(places) >= LARGEST for one in columns.values()):
        return None
    order = np.lexsort((times, places))
    places = places[order]
    starts = starts_of(places)
    ends = np.append(starts[1:], len(places))
    sorted_columns = {place: one.at(order) for place, one in columns.items()}
    found = [keys[place] for place in places[starts].tolist()]
    groups = np.repeat(np.arange(len(starts)), ends - starts)
    return SortedColumns(found, starts, ends, groups, order, times[order], sorted_columns)


def _largest(values: Longs) -> int:
    """The greatest distance from 0, and one more for that below it."""
    return max(int(values.max(initial=0)), -int(values.min(initial=0)))
