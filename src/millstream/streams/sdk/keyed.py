"""Keyed streams: aggregates, ranks, joins and patterns per key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.streams.errors import SqlError
from millstream.streams.plan.user_calls import PythonKind
from millstream.streams.plan.windows import Emit
from millstream.streams.sdk import sql_text
from millstream.streams.sdk.code import ErrorChoice, python_rows
from millstream.streams.sdk.grouped import BOUNDS, Call, Grouped, rank_rows, rows_of, stream_of, with_calls
from millstream.streams.sdk.pattern import Pattern, with_unless
from millstream.streams.sdk.schemas import Columns
from millstream.streams.sdk.sql_text import Duration, after, duration_ms, list_columns, quote_name
from millstream.streams.sdk.windowed import WindowedStream
from millstream.streams.sdk.windows import Window, tumbling

if TYPE_CHECKING:
    from millstream.streams.sdk.stream import Stream

__all__ = ["PROCESSING_TIME", "KeyedStream"]

PROCESSING_TIME = "processing_time"
"""The column of the clock that `window(..., on="processing")` adds."""


class KeyedStream(Grouped):
    """Rows with keys; made by `Stream.key_by`. What is computed here changes as rows come: one row a key."""

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        self.stream = stream
        self.keys = keys

    def aggregate(self, **calls: Call) -> Stream:
        """Aggregates of SQL (docs/functions.md) by key, each under its name.

        A class of accumulators (docs/user-functions.md) stands with its arguments: `mean=(Mean, "value", "weight")`.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> events.key_by("host").aggregate(lowest="MIN(bytes)", users="COUNT(*)").columns
        ('host', 'lowest', 'users')
        """
        grouped = f" GROUP BY {list_columns(self.keys)}" if self.keys else ""
        return self._of(f"SELECT {with_calls(self.stream, list_columns(self.keys), calls)} FROM stream{grouped}")

    def min(self, column: str) -> Stream:
        """The whole row that has the smallest value of an expression, one for each key; of equal ones the oldest.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> smallest = events.key_by("host").min("bytes")
        """
        return self._rank(f"({column}) ASC", 1, where=f"({column}) IS NOT NULL")

    def max(self, column: str) -> Stream:
        """The whole row that has the greatest value of an expression, one for each key; of equal ones the oldest.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> greatest = events.key_by("host").max("bytes")
        """
        return self._rank(f"({column}) DESC", 1, where=f"({column}) IS NOT NULL")

    def first(self, *, within: Duration | None = None) -> Stream:
        """The first row of each key, as it comes; with `within` of each key and tumbling window of event time.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str})
        >>> seen = events.key_by("host").first()
        """
        if within is None:
            return self._rank("PROCTIME() ASC", 1)
        windows = self.window(tumbling(within))
        return windows._rank(f"{quote_name(windows.time)} ASC", 1).drop(*BOUNDS)

    def last(self) -> Stream:
        """The last row of each key, which changes as rows come.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str})
        >>> newest = events.key_by("host").last()
        """
        return self._rank("PROCTIME() DESC", 1)

    def top_n(self, n: int, by: str, *, ascending: bool = False, rank: str | None = None) -> Stream:
        """The `n` rows of each key with the greatest values of an expression (the smallest with `ascending`).

        They change as rows come; `rank` names a column for their places, from 1.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> most = events.key_by("host").top_n(3, "bytes", rank="place")
        """
        return self._rank(f"({by}) {'ASC' if ascending else 'DESC'}", n, rank=rank)

    def window(
        self,
        window: Window,
        *,
        on: str | None = None,
        allow_lateness: Duration | None = None,
        early_every: Duration | None = None,
    ) -> WindowedStream:
        """The rows of each key in windows, each of which says its result once, when event time has passed its end.

        `on` is the column of event time, where there are several, or "processing" for the clock. With `allow_lateness`
        a window takes rows for that long after its end, and says its result again; with `early_every` it says what it
        has before its end.

        >>> from millstream.streams.sdk import StreamBuilder, tumbling
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int}, watermark="5 s")
        >>> events.key_by("host").window(tumbling("10 s")).sum("bytes").columns
        ('window_start', 'window_end', 'host', 'sum')
        """
        stream, time = _with_time_column(self.stream, on)
        emit = None
        if allow_lateness is not None or early_every is not None:
            late = None if allow_lateness is None else 0
            early = None if early_every is None else duration_ms(early_every)
            emit = Emit(early, late, 0 if allow_lateness is None else duration_ms(allow_lateness))
        return WindowedStream(KeyedStream(stream, self.keys), window, time, emit)

    def join(
        self, other: KeyedStream, *, latest: bool = False, where: str | None = None, suffix: str = "_right"
    ) -> Stream:
        """Pairs of rows with equal keys; `where` is a further condition over `l` (this side) and `r`.

        All rows of both sides are kept, or for the job's TTL; with `latest` only the newest one of each key and side,
        and the pair changes as they do. Columns of the other side that are called like one of this side get `suffix`.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> builder = StreamBuilder("job")
        >>> orders = builder.source("orders", schema={"id": int, "user": str}).key_by("user")
        >>> users = builder.source("users", schema={"user": str, "city": str}).key_by("user")
        >>> orders.join(users, latest=True).columns
        ('id', 'user', 'city')
        """
        return self._join(other, "JOIN", latest, where, suffix)

    def left_join(
        self, other: KeyedStream, *, latest: bool = False, where: str | None = None, suffix: str = "_right"
    ) -> Stream:
        """As `join`, and rows of this side without a partner, with NULL, until one comes.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> builder = StreamBuilder("job")
        >>> orders = builder.source("orders", schema={"id": int, "user": str}).key_by("user")
        >>> users = builder.source("users", schema={"user": str, "city": str}).key_by("user")
        >>> pairs = orders.left_join(users)
        """
        return self._join(other, "LEFT JOIN", latest, where, suffix)

    def interval_join(
        self,
        other: KeyedStream,
        lower: Duration,
        upper: Duration,
        *,
        left: bool = False,
        where: str | None = None,
        suffix: str = "_right",
    ) -> Stream:
        """Pairs with equal keys where the other row's event time lies from `lower` to `upper` behind this one's.

        Bounds may be negative ("-5 s"). Rows are forgotten when their time is over, so results never change; with
        `left` a row without a partner comes then, with NULL.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> builder = StreamBuilder("job")
        >>> logins = builder.source("logins", schema={"user": str}, watermark="5 s").key_by("user")
        >>> orders = builder.source("orders", schema={"user": str, "sum": int}, watermark="5 s").key_by("user")
        >>> soon = logins.interval_join(orders, "0 s", "10 min")
        """
        mine, theirs = (f"{of}.{quote_name(_time_of(one.stream))}" for of, one in (("l", self), ("r", other)))
        bounds = f"{theirs} BETWEEN {after(mine, lower)} AND {after(mine, upper)}"
        condition = f"{bounds} AND ({where})" if where else bounds
        return self._join(other, "LEFT JOIN" if left else "JOIN", False, condition, suffix)

    def pattern(self, pattern: Pattern, measures: dict[str, str], *, skip: str = "PAST LAST ROW") -> Stream:
        """One row for each match of a pattern in the rows of a key, in the order of event time.

        `measures` are its columns behind the keys, over the names of the pattern's parts; `skip` is where the next
        match may begin: "PAST LAST ROW", "TO NEXT ROW", "TO FIRST name" or "TO LAST name".

        >>> from millstream.streams.sdk import Pattern, StreamBuilder
        >>> logins = StreamBuilder("job").source("logins", schema={"user": str, "ok": bool}, watermark="5 s")
        >>> guessed = Pattern.begin("bad", "NOT ok").times(3).next("good", "ok").within("1 min")
        >>> logins.key_by("user").pattern(guessed, {"at": "good.event_time"}).columns
        ('user', 'at')
        """
        found = self._of(pattern.query(self.keys, _time_of(self.stream), measures, skip))
        return stream_of(found, with_unless(found.node, pattern.unless))

    def filter(self, condition: str | Callable[[Any], object], *, on_error: ErrorChoice | None = None) -> KeyedStream:
        """The rows for which the condition is true, with the same keys; see `Stream.filter`."""
        return KeyedStream(self.stream.filter(condition, on_error=on_error), self.keys)

    def map(
        self, function: Callable[[Any], Any], *, schema: Columns | None = None, on_error: ErrorChoice | None = None
    ) -> KeyedStream:
        """The row that a Python function makes of each row, with the same keys, which go along; see `Stream.map`.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "text": str})
        >>> lengths = events.key_by("host").map(lambda row: {"length": len(row.text)}, schema={"length": int})
        >>> lengths.sum("length").columns
        ('host', 'sum')
        """
        kind, node = PythonKind.MAP, self.stream.node
        step = python_rows(node, kind, function, schema=schema, on_error=on_error, keep=self.keys)
        return KeyedStream(stream_of(self.stream, step), self.keys)

    def flat_map(
        self, function: Callable[[Any], Any], *, schema: Columns | None = None, on_error: ErrorChoice | None = None
    ) -> Stream:
        """The rows that a Python function makes of each row, without keys; see `Stream.flat_map`."""
        return self.stream.flat_map(function, schema=schema, on_error=on_error)

    def tostream_of(self) -> Stream:
        """The rows without keys."""
        return self.stream

    def _join(self, other: KeyedStream, kind: str, latest: bool, where: str | None, suffix: str) -> Stream:
        if len(self.keys) != len(other.keys):
            message = f"The left side has {len(self.keys)} keys, the right side {len(other.keys)}."
            raise SqlError("SQL_TYPE", message, remedy="Give key_by as many columns on both sides.")
        pairs = tuple(zip(self.keys, other.keys, strict=True))
        left, right = (one.last() if latest else one.stream for one in (self, other))
        columns = sql_text.columns_of(left.schema, right.schema, pairs, suffix)
        condition = sql_text.equality_of(pairs) + (f" AND ({where})" if where else "")
        return rows_of(self.stream, f"SELECT {columns} FROM l {kind} r ON {condition}", l=left.node, r=right.node)

    def _rank(self, order: str, last: int, *, where: str = "", rank: str | None = None) -> Stream:
        return rank_rows(self.stream, "stream", self.keys, order, last, where, rank)

    def _of(self, query: str) -> Stream:
        return rows_of(self.stream, query, stream=self.stream.node)


def _with_time_column(stream: Stream, on: str | None) -> tuple[Stream, str]:
    """The stream, and the column that its windows stand on."""
    if on != "processing":
        return stream, on or _time_of(stream)
    known = next((field.name for field in stream.schema.fields if field.proctime), None)
    if known is not None:
        return stream, known
    return stream.with_column(PROCESSING_TIME, "PROCTIME()"), PROCESSING_TIME


def _time_of(stream: Stream) -> str:
    """The one column of event time."""
    known = [field.name for field in stream.schema.fields if field.rowtime]
    if len(known) == 1:
        return known[0]
    message = f"The stream has {len(known) or 'no'} columns of event time{': ' if known else ''}{', '.join(known)}."
    remedy = "Give the source a timestamp or a watermark."
    if known:
        remedy = "Name one with on=, or leave the others out with drop(...)."
    raise SqlError("SQL_TIME_ATTRIBUTE", message, remedy=remedy)
