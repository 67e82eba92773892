"""Windowed streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.streams.errors import SqlError
from millstream.streams.plan.windows import Emit
from millstream.streams.sdk import sql_text
from millstream.streams.sdk.grouped import BOUNDS, Call, Grouped, rank_rows, rows_of, stream_of, with_calls
from millstream.streams.sdk.sql_text import list_columns
from millstream.streams.sdk.windows import Window
from millstream.streams.sql.binder.inserts import with_emit

if TYPE_CHECKING:
    from millstream.streams.sdk.keyed import KeyedStream
    from millstream.streams.sdk.stream import Stream

__all__ = ["WindowedStream"]


class WindowedStream(Grouped):
    """Rows of each key in windows; made by `KeyedStream.window`. A result is one row a window and key."""

    def __init__(self, keyed: KeyedStream, window: Window, time: str, emit: Emit | None) -> None:
        self._keyed = keyed
        self._window = window
        self._emit = emit
        self.time = time

    def aggregate(self, *, event_time: bool = False, **calls: Call) -> Stream:  # type: ignore[override]
        """Aggregates of SQL (docs/functions.md) by window and key, each under its name.

        A class of accumulators (docs/user-functions.md) stands with its arguments: `mean=(Mean, "value", "weight")`.

        With `event_time` the column `window_time` is among them, on which further windows can stand.

        >>> from millstream.streams.sdk import StreamBuilder, sliding
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int}, watermark="5 s")
        >>> windows = events.key_by("host").window(sliding("1 min", slide="10 s"))
        >>> windows.aggregate(total="SUM(bytes)", users="COUNT(*)").columns
        ('window_start', 'window_end', 'host', 'total', 'users')
        """
        bounds = (*BOUNDS, *(("window_time",) if event_time else ()))
        groups = ", ".join([*bounds, *([list_columns(self._keyed.keys)] if self._keyed.keys else [])])
        return self._of(
            f"SELECT {with_calls(self._keyed.stream, groups, calls)} FROM {self._rows('stream')} GROUP BY {groups}"
        )

    def min(self, column: str) -> Stream:
        """The whole row that has the smallest value of an expression, of each window and key; of equal ones the oldest.

        >>> from millstream.streams.sdk import StreamBuilder, tumbling
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int}, watermark="5 s")
        >>> smallest = events.key_by("host").window(tumbling("10 s")).min("bytes")
        """
        return self._rank(f"({column}) ASC", 1, where=f"({column}) IS NOT NULL")

    def max(self, column: str) -> Stream:
        """The whole row that has the greatest value of an expression, of each window and key; of equal ones the oldest.

        >>> from millstream.streams.sdk import StreamBuilder, tumbling
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int}, watermark="5 s")
        >>> greatest = events.key_by("host").window(tumbling("10 s")).max("bytes")
        """
        return self._rank(f"({column}) DESC", 1, where=f"({column}) IS NOT NULL")

    def top_n(self, n: int, by: str, *, ascending: bool = False, rank: str | None = None) -> Stream:
        """The `n` rows of each window and key with the greatest values of an expression, once, at the window's end.

        >>> from millstream.streams.sdk import StreamBuilder, tumbling
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int}, watermark="5 s")
        >>> most = events.window(tumbling("10 s")).top_n(3, "bytes", rank="place")
        """
        return self._rank(f"({by}) {'ASC' if ascending else 'DESC'}", n, rank=rank)

    def rows(self) -> Stream:
        """Each row once for every window that it is in, with `window_start`, `window_end` and `window_time`.

        >>> from millstream.streams.sdk import StreamBuilder, tumbling
        >>> events = StreamBuilder("job").source("events", schema={"host": str}, watermark="5 s")
        >>> events.window(tumbling("10 s")).rows().columns
        ('host', 'event_time', 'window_start', 'window_end', 'window_time')
        """
        return self._of(f"SELECT * FROM {self._rows('stream')}")

    def join(self, other: WindowedStream, *, where: str | None = None, suffix: str = "_right") -> Stream:
        """Pairs of rows with equal keys in the same window, at its end; see `KeyedStream.join`.

        >>> from millstream.streams.sdk import StreamBuilder, tumbling
        >>> builder = StreamBuilder("job")
        >>> a = builder.source("a", schema={"user": str}, watermark="5 s").key_by("user").window(tumbling("10 s"))
        >>> b = builder.source("b", schema={"user": str}, watermark="5 s").key_by("user").window(tumbling("10 s"))
        >>> both = a.join(b)
        """
        return self._join(other, "JOIN", where, suffix)

    def left_join(self, other: WindowedStream, *, where: str | None = None, suffix: str = "_right") -> Stream:
        """As `join`, and rows of this side without a partner in the window, with NULL.

        >>> from millstream.streams.sdk import StreamBuilder, tumbling
        >>> builder = StreamBuilder("job")
        >>> a = builder.source("a", schema={"user": str}, watermark="5 s").key_by("user").window(tumbling("10 s"))
        >>> b = builder.source("b", schema={"user": str}, watermark="5 s").key_by("user").window(tumbling("10 s"))
        >>> all_of_a = a.left_join(b)
        """
        return self._join(other, "LEFT JOIN", where, suffix)

    def _join(self, other: WindowedStream, kind: str, where: str | None, suffix: str) -> Stream:
        mine, theirs = self._keyed, other._keyed
        pairs = (*((bound, bound) for bound in BOUNDS), *zip(mine.keys, theirs.keys, strict=True))
        left, right = self.rows().drop("window_time"), other.rows().drop("window_time")
        columns = sql_text.columns_of(left.schema, right.schema, pairs, suffix)
        condition = sql_text.equality_of(pairs) + (f" AND ({where})" if where else "")
        query = (
            f"SELECT {columns} FROM (SELECT * FROM {self._rows('l_rows')}) AS l {kind}"
            f" (SELECT * FROM {other._rows('r_rows')}) AS r ON {condition}"
        )
        return rows_of(mine.stream, query, l_rows=mine.stream.node, r_rows=theirs.stream.node)

    def _rank(self, order: str, last: int, *, where: str = "", rank: str | None = None) -> Stream:
        keys = (*BOUNDS, *self._keyed.keys)
        return rank_rows(self._keyed.stream, self._rows("stream"), keys, order, last, where, rank, windowed=True)

    def _rows(self, table: str) -> str:
        return self._window.rows(table, self.time, self._keyed.keys)

    def _of(self, query: str) -> Stream:
        found = rows_of(self._keyed.stream, query, stream=self._keyed.stream.node)
        if self._emit is None:
            return found
        spoken = with_emit(found.node, self._emit)
        if spoken == found.node:
            message = f"{self._window.function} windows say their result at their end only."
            raise SqlError("SQL_UNSUPPORTED", message, remedy="Leave allow_lateness and early_every out.")
        return stream_of(found, spoken)
