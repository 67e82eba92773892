"""Times as text in a pattern of Java: Spark's own letters, and those of weeks and years that Spark leaves out."""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.expressions import Call
from millstream.streams.spark.functions.builder import literal
from millstream.streams.spark.functions.formats import checked_format, checked_pattern

__all__ = ["written"]

_RUNS = re.compile(r"'[^']*'?|([A-Za-z])\1*|[^A-Za-z']+")
"""Quoted text, the same letter so many times, or what is no letter."""

_NAMED = re.compile("[ec]{3,}")
_WEEK_DAYS = 7
_SHORT_YEAR = 2


def written(call: Call, position: int, time: Column) -> Column:
    """The time in the constant format at `position` of the call, else in the default one. Raises JobError.

    Weeks begin on Sundays, and the first one of a year has its first day, as in the United States.
    """
    pattern = literal(call, position, str)
    if pattern is None or not re.search("[YwWuec]", pattern):
        return F.call_function("date_format", time, checked_format(call, position, reads=False))
    parts, plain = [], ""
    for run in (found[0] for found in _RUNS.finditer(pattern)):
        most, made = _MADE.get(run[0], (0, _year))
        if len(run) > most:
            plain += _in_sparks_letters(run)
            continue
        parts += [*_plain(call, plain, time), made(time, len(run))]
        plain = ""
    return F.concat(*parts, *_plain(call, plain, time))


def _plain(call: Call, pattern: str, time: Column) -> list[Column]:
    if not pattern:
        return []
    return [F.call_function("date_format", time, checked_pattern(call, pattern, reads=False))]


def _in_sparks_letters(run: str) -> str:
    """Years and names of days by the letters that Spark knows them by."""
    if run[0] == "u":
        return "y" * len(run)
    return "E" * len(run) if _NAMED.fullmatch(run) else run


def _end_of_week(time: Column) -> Column:
    date = time.cast("date")
    return F.date_add(date, F.lit(_WEEK_DAYS) - F.dayofweek(date))


def _year(time: Column, letters: int) -> Column:
    year = F.year(_end_of_week(time))
    return _padded(year % F.lit(100) if letters == _SHORT_YEAR else year, letters)


def _week_of_year(time: Column, letters: int) -> Column:
    return _padded(F.ceil(F.dayofyear(_end_of_week(time)) / F.lit(_WEEK_DAYS)), letters)


def _week_of_month(time: Column, letters: int) -> Column:
    first = F.dayofweek(F.trunc(time, "month"))
    return _padded(F.ceil((F.dayofmonth(time) + first - F.lit(1)) / F.lit(_WEEK_DAYS)), letters)


def _day_of_week(time: Column, letters: int) -> Column:
    return _padded(F.dayofweek(time), letters)


def _padded(number: Column, letters: int) -> Column:
    text = number.cast("string")
    return F.when(F.length(text) < letters, F.lpad(text, letters, "0")).otherwise(text)


_MADE: dict[str, tuple[int, Callable[[Column, int], Column]]] = {
    "Y": (19, _year),
    "w": (2, _week_of_year),
    "W": (1, _week_of_month),
    "e": (2, _day_of_week),
    "c": (1, _day_of_week),
}
"""What makes the text of a letter, and how often it may stand in a row, as Java has it."""
