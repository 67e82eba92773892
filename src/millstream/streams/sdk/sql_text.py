"""Fragments of SQL text: names, durations, column lists, and join conditions."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence

from millstream.streams.connectors.options import milliseconds
from millstream.streams.errors import SqlError
from millstream.streams.plan.types import Schema

__all__ = [
    "Duration",
    "On",
    "after",
    "columns_of",
    "dimension_query",
    "duration_ms",
    "equality_of",
    "interval",
    "items",
    "list_columns",
    "literal",
    "pairs_of",
    "quote_name",
]


Duration = str | datetime.timedelta
"""How long: a `timedelta`, or a text such as "10 s", "500 ms" or "5 min"."""


def quote_name(name: str) -> str:
    """A name as SQL reads it, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """A text as SQL reads it."""
    return f"'{text.replace(chr(39), chr(39) * 2)}'"


def list_columns(names: Iterable[str], of: str = "") -> str:
    """Columns with commas between them, of the table `of` where it is named."""
    prefix = f"{of}." if of else ""
    return ", ".join(f"{prefix}{quote_name(name)}" for name in names)


def items(written: Iterable[str], columns: Iterable[str]) -> str:
    """What a SELECT lists: a text that is the name of a column is quoted, any other is SQL."""
    known = set(columns)
    return ", ".join(quote_name(item) if item in known else item for item in written)


def duration_ms(duration: Duration) -> int:
    """Milliseconds. Raises SqlError SQL_TYPE for a text that is no duration."""
    if isinstance(duration, datetime.timedelta):
        return round(duration.total_seconds() * 1000)
    sign = -1 if duration.strip().startswith("-") else 1
    try:
        return sign * milliseconds(duration.strip().removeprefix("-"))
    except ValueError:
        remedy = "Write it as in '10 s', '500 ms' or '1 min', or give a timedelta."
        raise SqlError("SQL_TYPE", f"{duration!r} is no duration.", remedy=remedy) from None


def interval(duration: Duration) -> str:
    """INTERVAL '10' SECOND of a duration."""
    whole_s, rest_ms = divmod(duration_ms(duration), 1000)
    return f"INTERVAL '{whole_s}{f'.{rest_ms:03d}' if rest_ms else ''}' SECOND"


def after(time: str, duration: Duration) -> str:
    """A time that lies the duration behind another; before it, where the duration is negative."""
    moved_ms = duration_ms(duration)
    return f"{time} {'-' if moved_ms < 0 else '+'} {interval(datetime.timedelta(milliseconds=abs(moved_ms)))}"


On = str | Sequence[str] | Mapping[str, str]
"""Columns that are equal: one name, several, or those of the left side with those of the right."""


def pairs_of(on: On) -> tuple[tuple[str, str], ...]:
    """Columns of the left and of the right side."""
    if isinstance(on, str):
        return ((on, on),)
    if isinstance(on, Mapping):
        return tuple(on.items())
    return tuple((name, name) for name in on)


def equality_of(pairs: Sequence[tuple[str, str]]) -> str:
    """The condition that the columns of `l` and `r` are equal."""
    if not pairs:
        raise SqlError("SQL_TYPE", "A join needs columns that are equal.", remedy="Name them in on or key_by.")
    return " AND ".join(f"l.{quote_name(left)} = r.{quote_name(right)}" for left, right in pairs)


def columns_of(left: Schema, right: Schema, pairs: Sequence[tuple[str, str]], suffix: str) -> str:
    """What the join gives: the columns of `l`, then those of `r` without the ones that say the same.

    A column of `r` that is called like one of `l` gets the suffix.
    """
    same = {theirs for mine, theirs in pairs if mine == theirs}
    found = [f"l.{quote_name(name)}" for name in left.names]
    for name in right.names:
        if name not in same:
            alias = f" AS {quote_name(name + suffix)}" if name in left.names else ""
            found.append(f"r.{quote_name(name)}{alias}")
    return ", ".join(found)


def dimension_query(
    stream: Schema, dimension: Schema, table: str, on: On, *, where: str | None, left: bool, suffix: str
) -> str:
    """A lookup join of the table `stream` with a dimension table."""
    pairs = pairs_of(on)
    condition = equality_of(pairs) + (f" AND ({where})" if where else "")
    shown = table if "." in table or table.startswith("`") else quote_name(table)
    return (
        f"SELECT {columns_of(stream, dimension, pairs, suffix)} FROM stream AS l {'LEFT ' if left else ''}JOIN {shown}"
        f" FOR SYSTEM_TIME AS OF PROCTIME() AS r ON {condition}"
    )
