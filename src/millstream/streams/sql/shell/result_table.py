"""Formats query results: cells as text, and the table after all changes."""

from __future__ import annotations

import datetime
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from millstream.streams.plan.changelog import ChangelogMode, RowKind, changelog_of, upsert_key_of
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.ordering import Sort

__all__ = ["ResultShape", "ResultTable", "SortColumn", "cell_text", "query_shape"]


def cell_text(value: object, zone: datetime.tzinfo = datetime.UTC) -> str:
    """One value: NULL for none, instants in `zone`, (ROW), [ARRAY], {MAP}.

    Times have milliseconds, or microseconds where there are any.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case datetime.datetime():
            local = value.astimezone(zone) if value.tzinfo is not None else value
            return local.isoformat(sep=" ", timespec="microseconds" if local.microsecond % 1000 else "milliseconds")
        case bytes() | bytearray():
            return f"x'{value.hex()}'"
        case dict():  # a ROW
            return f"({', '.join(cell_text(item, zone) for item in value.values())})"
        case list():
            texts = [cell_text(item, zone) for item in value]
            # A MAP comes as pairs; an ARRAY<ROW> as dicts.
            return f"{{{', '.join(texts)}}}" if value and isinstance(value[0], tuple) else f"[{', '.join(texts)}]"
        case tuple():
            return "=".join(cell_text(item, zone) for item in value)
        case _:
            return str(value)


Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class SortColumn:
    """One column of the order in which rows are shown, by its place."""

    column: int
    ascending: bool = True
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class ResultShape:
    """What is known of a result before its first row.

    `key` are the places of the columns that name a row, None if nothing does; `is_query` tells a SELECT's rows
    from those of a print sink, which are always shown as they come.
    """

    columns: tuple[str, ...]
    changes: bool = False
    key: tuple[int, ...] | None = None
    order: tuple[SortColumn, ...] = ()
    is_query: bool = True


def query_shape(node: Node) -> ResultShape:
    """The shape of a SELECT's result."""
    names = node.schema.names
    changes = changelog_of(node) is ChangelogMode.RETRACT
    # A key names one row at a time; where rows only come, each of them stays.
    key = upsert_key_of(node) if changes else None
    places = tuple(names.index(name) for name in names if name in key) if key is not None else None
    order: tuple[SortColumn, ...] = ()
    if isinstance(node, Sort):
        order = tuple(SortColumn(names.index(of.column), of.ascending, of.has_nulls_first) for of in node.order)
    return ResultShape(names, changes, places, order)


class ResultTable:
    """Applies changes. With `key` (places of columns) the row of a key keeps its place on the screen while it changes.

    Without one equal rows count together, and a row that is taken back is any of those equal to it. At most `max_rows`
    are kept: then the oldest go, and `dropped` counts them.
    """

    def __init__(self, *, key: Sequence[int] | None, max_rows: int, order: Sequence[SortColumn] = ()) -> None:
        self._key = None if key is None else tuple(key)
        self._max_rows = max_rows
        self._order = tuple(order)
        # An ordered one finds its first entry at once, however many were dropped before it.
        self._rows: OrderedDict[Hashable, list[Row]] = OrderedDict()
        self._emptied: set[Hashable] = set()
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def apply(self, rows: Sequence[Row], kinds: Sequence[RowKind] | None = None) -> None:
        """Take changes in their order; all are inserts where `kinds` is None."""
        if not rows:
            return
        waiting, self._emptied = self._emptied, set()
        for place, row in enumerate(rows):
            kind = RowKind.INSERT if kinds is None else kinds[place]
            slot = _frozen(row) if self._key is None else tuple(_frozen(row[column]) for column in self._key)
            if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                self._put(slot, row)
            else:
                self._take(slot, may_return=kind is RowKind.UPDATE_BEFORE)
        # The other half of an update may stand in the next rows; what has waited for it since the rows before is gone.
        for slot in waiting - self._emptied:
            if not self._rows.get(slot, True):
                del self._rows[slot]

    def rows(self) -> list[Row]:
        """The rows, sorted if the query sorts them, else in the order in which they first came."""
        found = [row for slot in self._rows.values() for row in slot]
        for of in reversed(self._order):
            found.sort(key=lambda row: _rank(row[of.column], of), reverse=not of.ascending)
        return found

    def last(self, count: int) -> list[Row]:
        """The rows that a screen of `count` shows: the first ones of a sorted result, else the newest."""
        if self._order:
            return self.rows()[:count]
        found: list[Row] = []
        for slot in reversed(self._rows.values()):
            found += reversed(slot)
            if len(found) >= count:
                break
        return found[:count][::-1]

    def _put(self, slot: Hashable, row: Row) -> None:
        held = self._rows.setdefault(slot, [])
        if self._key is not None and held:
            held[0] = row
            return
        held.append(row)
        self._count += 1
        if self._count > self._max_rows:
            self._drop_oldest()

    def _take(self, slot: Hashable, *, may_return: bool) -> None:
        held = self._rows.get(slot)
        if not held:
            return
        held.pop()
        self._count -= 1
        if not held and may_return and self._key is not None:
            self._emptied.add(slot)
        elif not held:
            del self._rows[slot]

    def _drop_oldest(self) -> None:
        slot = next(slot for slot, held in self._rows.items() if held)
        self._take(slot, may_return=False)
        self.dropped += 1


def _rank(value: object, of: SortColumn) -> tuple[bool, object]:
    """Sorts NULL before or behind all values; the caller turns the whole order around where it descends."""
    is_first = of.nulls_first == of.ascending
    return (value is not None) == is_first, 0 if value is None else value


def _frozen(value: object) -> Hashable:
    """The value as something that a dict can hold; NaN equals NaN."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return frozenset((_frozen(key), _frozen(item)) for key, item in value.items())
    if isinstance(value, float) and value != value:
        return "NaN"
    return value if isinstance(value, Hashable) else repr(value)
