"""Calendar units on Spark timestamps with Flink's rules: months, weeks and years.

The same as `millstream.streams.functions.calendar` says of plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.streams.functions.calendar import DAY_US, MONTHS_OF_UNITS, UNITS_US

__all__ = ["FIELDS", "floor_to_unit", "months_between", "next_bound", "part_of", "part_of_months", "units_between"]

_DAY_MS = DAY_US // 1000
_CLOCK_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_YEARS = {"DECADE": (10, 0), "CENTURY": (100, 1), "MILLENNIUM": (1000, 1)}
"""How long such a unit is, and the number that its first year ends with."""


def _rest(unit_us: int, part_us: int) -> Callable[[Column], Column]:
    return lambda time: F.call_function("div", F.pmod(F.unix_micros(time), F.lit(unit_us)), F.lit(part_us))


def _of_year(add: int, length: int) -> Callable[[Column], Column]:
    return lambda time: F.call_function("div", F.year(time) + F.lit(add), F.lit(length))


FIELDS: dict[str, Callable[[Column], Column]] = {
    "YEAR": F.year,
    "ISOYEAR": lambda time: F.extract(F.lit("YEAROFWEEK"), time),
    "DECADE": _of_year(0, 10),
    "CENTURY": _of_year(99, 100),
    "MILLENNIUM": _of_year(999, 1000),
    "QUARTER": F.quarter,
    "MONTH": F.month,
    "WEEK": F.weekofyear,
    "DAY": F.dayofmonth,
    "DAYOFMONTH": F.dayofmonth,
    "DOY": F.dayofyear,
    "DAYOFYEAR": F.dayofyear,
    "DOW": F.dayofweek,
    "DAYOFWEEK": F.dayofweek,
    "ISODOW": lambda time: F.weekday(time) + 1,
    "HOUR": F.hour,
    "MINUTE": F.minute,
    "SECOND": F.second,
    "MILLISECOND": _rest(UNITS_US["SECOND"], UNITS_US["MILLISECOND"]),
    "MICROSECOND": _rest(UNITS_US["SECOND"], 1),
    "NANOSECOND": lambda time: _rest(UNITS_US["SECOND"], 1)(time) * F.lit(1000),
    "EPOCH": F.unix_seconds,
}
"""What EXTRACT gives of a timestamp, by the unit."""


def part_of(interval: Column, unit: str) -> Column:
    """What EXTRACT gives of an interval of days, cut towards 0."""
    if unit in ("SECOND", "MILLISECOND"):
        # A DECIMAL with the microseconds behind the point.
        seconds = F.extract(F.lit("SECOND"), interval)
        whole = (
            (seconds * F.lit(1000)).cast("bigint") % F.lit(1000) if unit == "MILLISECOND" else seconds.cast("bigint")
        )
        return F.when(interval.isNotNull(), whole)
    if unit == "EPOCH":
        clock = sum((part_of(interval, of) * F.lit(UNITS_US[of] // 1_000_000) for of in _CLOCK_UNITS), F.lit(0))
        return clock.cast("bigint")
    return F.extract(F.lit(unit), interval)


def part_of_months(months: Column, unit: str) -> Column:
    """What EXTRACT gives of an interval of years, which is so many months, cut towards 0."""
    if unit == "YEAR":
        return F.call_function("div", months, F.lit(12))
    month = (months % F.lit(12)).cast("bigint")
    return F.call_function("div", month - F.lit(1), F.lit(3)) + F.lit(1) if unit == "QUARTER" else month


def floor_to_unit(time: Column, unit: str) -> Column:
    """The bound of the unit at or before the time; weeks begin on Sundays."""
    if unit == "WEEK":
        return F.date_sub(time.cast("date"), F.dayofweek(time) - F.lit(1)).cast("timestamp")
    if unit in _YEARS:
        length, first = _YEARS[unit]
        year = F.year(time) - F.pmod(F.year(time) - F.lit(first), F.lit(length))
        return F.make_date(year, F.lit(1), F.lit(1)).cast("timestamp")
    return F.date_trunc(unit, time)


def next_bound(floor: Column, unit: str) -> Column:
    """The bound behind a bound."""
    if unit in _YEARS:
        return F.timestamp_add("YEAR", F.lit(_YEARS[unit][0]), floor)
    return F.timestamp_add(unit, F.lit(1), floor)


def units_between(unit: str, start: Column, end: Column) -> Column:
    """The whole units from one timestamp to another, without what is below milliseconds."""
    if unit in MONTHS_OF_UNITS:
        return F.call_function("div", months_between(start, end), F.lit(MONTHS_OF_UNITS[unit]))
    milliseconds = F.unix_millis(end) - F.unix_millis(start)
    return F.call_function("div", milliseconds, F.lit(UNITS_US[unit] // 1000))


def months_between(start: Column, end: Column) -> Column:
    """The whole months from one timestamp to another."""
    first, last = start.cast("date"), end.cast("date")
    months = F.when(first <= last, _of_dates(first, last)).otherwise(-_of_dates(last, first))
    on_the_day = F.add_months(first, months) == last
    return months - (on_the_day & (_clock(end) < _clock(start))).cast("int")


def _of_dates(first: Column, last: Column) -> Column:
    months = (F.year(last) - F.year(first)) * F.lit(12) + F.month(last) - F.month(first)
    short = (F.dayofmonth(last) < F.dayofmonth(first)) & (last != F.last_day(last))
    return months - short.cast("int")


def _clock(time: Column) -> Column:
    return F.pmod(F.unix_millis(time), F.lit(_DAY_MS))
