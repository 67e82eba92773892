"""Parts of statements as text: names, durations, lists of columns."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from millstream.streams.connectors.options import milliseconds
from millstream.streams.errors import SqlError

__all__ = ["Duration", "after", "duration_ms", "interval", "items", "list_columns", "literal", "quote_name"]

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
