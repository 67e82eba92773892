"""Shared parts of keyed and windowed streams: counts, sums, and ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import Node
from millstream.streams.sdk.sql_text import items, list_columns, quote_name

if TYPE_CHECKING:
    from millstream.streams.sdk.stream import Stream

__all__ = ["BOUNDS", "Call", "Grouped", "rank_rows", "rows_of", "stream_of", "with_calls"]

Call = str | tuple[type | str, ...]
"""An aggregate: a text of SQL, or a class of accumulators with its arguments."""

BOUNDS = ("window_start", "window_end")
"""The columns of a window."""

_PLACE = "place_of_row"


class Grouped(ABC):
    """What is counted and added up by keys, with or without windows."""

    @abstractmethod
    def aggregate(self, **calls: Call) -> Stream:
        """Aggregates, each under its name."""

    def count(self, column: str | None = None, *, name: str = "count") -> Stream:
        """How many rows there are, or how many in which `column` (an expression) is not NULL.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "user": str})
        >>> events.key_by("host").count("user", name="users").columns
        ('host', 'users')
        """
        return self._one("COUNT", column or "*", name)

    def sum(self, column: str, *, name: str = "sum") -> Stream:
        """The sum of an expression, in the widest type of its kind: BIGINT, DOUBLE or DECIMAL.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> totals = events.key_by("host").sum("bytes", name="total")
        """
        return self._one("SUM", column, name)

    def avg(self, column: str, *, name: str = "avg") -> Stream:
        """The mean of an expression; of whole numbers it is a whole number, as in Flink (CAST it to DOUBLE else).

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "seconds": float})
        >>> means = events.key_by("host").avg("seconds")
        """
        return self._one("AVG", column, name)

    def count_distinct(self, column: str, *, name: str = "count_distinct") -> Stream:
        """How many different values an expression has, exactly; NULL is none.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "user": str})
        >>> users = events.key_by("host").count_distinct("user")
        """
        return self._one("COUNT", f"DISTINCT {column}", name)

    def _one(self, function: str, argument: str, name: str) -> Stream:
        return self.aggregate(**{name: f"{function}({argument})"})


def with_calls(like: Stream, groups: str, calls: Mapping[str, Call]) -> str:
    named = [f"{_call_text(like, call)} AS {quote_name(name)}" for name, call in calls.items()]
    return ", ".join([*([groups] if groups else []), *named])


def _call_text(like: Stream, call: Call) -> str:
    if isinstance(call, str):
        return call
    accumulator, *arguments = call
    if not isinstance(accumulator, type):
        remedy = 'Write mean=(WeightedMean, "value", "weight").'
        raise SqlError("SQL_TYPE", f"{accumulator!r} is no class of accumulators.", remedy=remedy)
    return f"{like.builder.function(accumulator)}({items(map(str, arguments), like.columns)})"


def rank_rows(
    stream: Stream,
    rows: str,
    keys: tuple[str, ...],
    order: str,
    last: int,
    where: str,
    rank: str | None,
    *,
    windowed: bool = False,
) -> Stream:
    """The first `last` rows of each key, with their places where `rank` names them."""
    partition = f"PARTITION BY {list_columns(keys)} " if keys else ""
    place = rank or _PLACE
    columns = list_columns((*stream.columns, *(BOUNDS if windowed else ())))
    filtered = f" WHERE {where}" if where else ""
    inner = f"SELECT *, ROW_NUMBER() OVER ({partition}ORDER BY {order}) AS {quote_name(place)} FROM {rows}{filtered}"
    shown = f"{columns}, {quote_name(place)}" if rank else columns
    bound = f"{quote_name(place)} = 1" if last == 1 else f"{quote_name(place)} <= {last}"
    return rows_of(stream, f"SELECT {shown} FROM ({inner}) WHERE {bound}", stream=stream.node)


def rows_of(like: Stream, query: str, /, **inputs: Node) -> Stream:
    return stream_of(like, like.builder.rows(query, **inputs))


def stream_of(stream: Stream, node: Node) -> Stream:
    return type(stream)(stream.builder, node)
