"""Rows by their key columns, put together in as few steps of Python as can be."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any

from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.changes import Row

__all__ = ["frozen", "row_key", "rows_by_key"]

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
