"""Results as text: cells, changes as lines, and a table of what is there after all changes."""

from __future__ import annotations

import datetime
import json
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from millstream.cli.options import OutputFormat
from millstream.streams.plan.changelog import RowKind

__all__ = ["ChangeLines", "ResultTable", "SortColumn", "cell_text"]


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


_MAX_WIDTH = 40
"""Characters of a column at most; a longer value pushes what is behind it to the right, and loses nothing."""

_KIND_COLUMN = "op"


class ChangeLines:
    """Lines of one result: JSON objects, words by tabs, or columns under a header. `with_kinds` adds +I, -U, +U, -D."""

    def __init__(
        self, label: str, columns: Sequence[str], output: OutputFormat, zone: datetime.tzinfo, *, with_kinds: bool
    ) -> None:
        self._label = label
        self._columns = tuple(columns)
        self._format = output
        self._zone = zone
        self._with_kinds = with_kinds
        self._widths: list[int] | None = None

    def of(self, rows: Sequence[tuple[object, ...]], kinds: Sequence[RowKind] | None) -> Iterator[str]:
        """The lines of these rows, behind a header where there was none."""
        signs = [RowKind.INSERT.short] * len(rows) if kinds is None else [kind.short for kind in kinds]
        if self._format == "json":
            for row, sign in zip(rows, signs, strict=True):
                kind = {_KIND_COLUMN: sign} if self._with_kinds else {}
                values = dict(zip(self._columns, row, strict=True))
                line = {"sink": self._label, **kind, "row": values}
                yield json.dumps(line, ensure_ascii=False, default=self._text)
            return
        for cells in self._cells(rows, signs):
            yield "\t".join((self._label, *cells)) if self._format == "plain" else self._pad(cells)

    def _cells(self, rows: Sequence[tuple[object, ...]], signs: Sequence[str]) -> Iterator[list[str]]:
        texts = [[self._text(value).replace("\n", " ") for value in row] for row in rows]
        if self._with_kinds:
            texts = [[sign, *cells] for sign, cells in zip(signs, texts, strict=True)]
        if self._format == "table" and self._widths is None and texts:
            header = [*([_KIND_COLUMN] if self._with_kinds else []), *self._columns]
            columns = zip(header, *texts, strict=True)
            self._widths = [min(_MAX_WIDTH, max(map(len, column))) for column in columns]
            yield header
        yield from texts

    def _pad(self, cells: Sequence[str]) -> str:
        widths = self._widths or [0] * len(cells)
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    def _text(self, value: object) -> str:
        return cell_text(value, self._zone)


Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class SortColumn:
    """One column of the order in which rows are shown, by its place."""

    column: int
    ascending: bool = True
    nulls_first: bool = True


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
