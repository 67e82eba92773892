"""The rows of a turn by column, sorted by key and time, with sums over any stretch of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from millstream.streams.operators.columns import LARGEST, Flags, Longs, Numbers, concatenate, starts_of

__all__ = ["KeyedColumns", "SortedColumns", "sort_columns"]


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
