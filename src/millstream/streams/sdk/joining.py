"""Joins as text of SQL: which columns are compared, and what the columns of the result are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.streams.errors import SqlError
from millstream.streams.plan.types import Schema
from millstream.streams.sdk.sql_text import quote_name

__all__ = ["On", "columns_of", "dimension_query", "equality_of", "pairs_of"]

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
