"""Time windows of the SDK."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from millstream.streams.sdk.sql_text import Duration, interval, list_columns, quote_name

__all__ = ["Window", "cumulating", "session", "sliding", "tumbling"]


@dataclass(frozen=True, slots=True)
class Window:
    """How time is cut; made by `tumbling`, `sliding`, `session` and `cumulating`.

    `sizes` are in the order of the function of SQL, whose name is `function`.
    """

    function: str
    sizes: tuple[datetime.timedelta | str, ...]

    def rows(self, table: str, time: str, keys: tuple[str, ...] = ()) -> str:
        """The table function over a table; sessions are those of each of the `keys`."""
        partition = f" PARTITION BY ({list_columns(keys)})" if self.function == "SESSION" and keys else ""
        sizes = ", ".join(interval(size) for size in self.sizes)
        return f"TABLE({self.function}(TABLE {table}{partition}, DESCRIPTOR({quote_name(time)}), {sizes}))"


def tumbling(size: Duration, offset: Duration | None = None) -> Window:
    """Windows of one size, side by side, beginning at whole multiples of it since 1970, or `offset` later.

    >>> tumbling("10 s").function
    'TUMBLE'
    """
    return Window("TUMBLE", (size,) if offset is None else (size, offset))


def sliding(size: Duration, slide: Duration) -> Window:
    """Windows of one size, of which one begins every `slide`; a row is in size / slide of them.

    >>> sliding("1 min", slide="10 s").sizes
    ('10 s', '1 min')
    """
    return Window("HOP", (slide, size))


def session(gap: Duration) -> Window:
    """Windows that end where no row of the key came for `gap`.

    >>> session("30 min").function
    'SESSION'
    """
    return Window("SESSION", (gap,))


def cumulating(size: Duration, step: Duration) -> Window:
    """Windows that begin at multiples of `size` and grow by `step` up to it.

    >>> cumulating("1 h", step="10 min").sizes
    ('10 min', '1 h')
    """
    return Window("CUMULATE", (step, size))
