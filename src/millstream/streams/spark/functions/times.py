"""Time functions: parsing, formatting, fields and arithmetic. The session's zone is UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from millstream.streams.errors import JobError
from millstream.streams.functions.calendar import in_other_zone, zone_name
from millstream.streams.plan.expressions import Call, columns_of
from millstream.streams.plan.types import TypeKind
from millstream.streams.spark.columns.calendar import (
    FIELDS,
    floor_to_unit,
    months_between,
    next_bound,
    part_of,
    part_of_months,
    units_between,
)
from millstream.streams.spark.functions.builder import Builder, by_row, literal

__all__ = [
    "DEFAULT_FORMAT",
    "TIMES",
    "ceil_time",
    "checked_format",
    "checked_pattern",
    "floor_time",
    "is_print_format",
    "to_milliseconds",
    "write_time",
]


DEFAULT_FORMAT = "yyyy-MM-dd HH:mm:ss"
_REMEDY = "Use letters such as yyyy MM dd EEE HH mm ss SSS, and quote text: 'T'."
_REMEDY_READING = "Use yyyy MM dd HH mm ss SSS and quoted text: names of days, and weeks, are only written."
_CACHED_FORMATS = 1_000
_WIDE = re.compile(r"\d{7}")
"""A width or precision that would make a text of millions of characters of any value."""


def checked_format(call: Call, position: int, *, reads: bool = True) -> Column:
    """The format argument at `position` of `call`, else the default one; JobError for a pattern that Spark refuses.

    With `reads` it is one that texts can be read by, too.
    """
    if position >= len(call.arguments):
        return F.lit(DEFAULT_FORMAT)
    pattern = literal(call, position, str)
    if pattern is None:
        if list(columns_of(call.arguments[position])):
            raise JobError("JOB_FAILED", f"The format of {call} is not a constant.", remedy=_REMEDY)
        return F.lit(None).cast("string")
    return checked_pattern(call, pattern, reads=reads)


def checked_pattern(call: Call, pattern: str, *, reads: bool) -> Column:
    """The pattern, or a part of one; JobError where Spark refuses it."""
    if not _is_known(pattern, reads):
        remedy = _REMEDY_READING if reads else _REMEDY
        raise JobError("JOB_FAILED", f"{call.function} cannot use the format {pattern!r}.", remedy=remedy)
    return F.lit(pattern)


@lru_cache(maxsize=_CACHED_FORMATS)
def _is_known(pattern: str, reads: bool) -> bool:
    # A constant row is computed while Spark optimises: no task is started.
    row = SparkSession.active().sql("SELECT 1")
    try:
        row.select(F.date_format(F.lit(0).cast("timestamp"), pattern)).collect()
        if reads:
            row.select(F.try_to_timestamp(F.lit("2026-01-02"), F.lit(pattern))).collect()
    except PySparkException:
        return False
    return True


@lru_cache(maxsize=_CACHED_FORMATS)
def is_print_format(pattern: str, samples: tuple[str | bool | int | float, ...]) -> bool:
    """Whether Java's formatter takes values like these in that pattern; Spark finds a wrong one only with rows."""
    if _WIDE.search(pattern):
        return False
    jvm = SparkSession.active()._jvm
    gateway = SparkSession.active().sparkContext._gateway
    values = gateway.new_array(jvm.java.lang.Object, len(samples))  # type: ignore[union-attr]
    for place, sample in enumerate(samples):
        values[place] = sample
    try:
        jvm.java.lang.String.format(jvm.java.util.Locale.US, pattern, values)  # type: ignore[union-attr]
    except (PySparkException, Py4JJavaError):
        return False
    return True


_RUNS = re.compile(r"'[^']*'?|([A-Za-z])\1*|[^A-Za-z']+")
"""Quoted text, the same letter so many times, or what is no letter."""

_NAMED = re.compile("[ec]{3,}")
_WEEK_DAYS = 7
_SHORT_YEAR = 2


def write_time(call: Call, position: int, time: Column) -> Column:
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
    return _pad_number(year % F.lit(100) if letters == _SHORT_YEAR else year, letters)


def _week_of_year(time: Column, letters: int) -> Column:
    return _pad_number(F.ceil(F.dayofyear(_end_of_week(time)) / F.lit(_WEEK_DAYS)), letters)


def _week_of_month(time: Column, letters: int) -> Column:
    first = F.dayofweek(F.trunc(time, "month"))
    return _pad_number(F.ceil((F.dayofmonth(time) + first - F.lit(1)) / F.lit(_WEEK_DAYS)), letters)


def _day_of_week(time: Column, letters: int) -> Column:
    return _pad_number(F.dayofweek(time), letters)


def _pad_number(number: Column, letters: int) -> Column:
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


_DEFAULT_TIMESTAMP = r"^\s*\d{1,4}-\d{1,2}-\d{1,2}( \d{1,2}:\d{1,2}:\d{1,2}(\.\d+)?)?\s*$"
"""What TO_TIMESTAMP reads without a format; Spark's own cast takes more, and would read a zone."""

_NO_UNIX_TIME = -(2**63)
"""What UNIX_TIMESTAMP answers for a text that is no time."""

_MILLISECOND_PRECISION, _MICROSECOND_PRECISION = 3, 6
_DIGITS_OF_TIME = 9

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, beyond which TO_TIMESTAMP_LTZ answers NULL, as in Flink."""

_MOST_YEARS_ADDED = 10_000
_MOST_DAYS_ADDED = 366 * _MOST_YEARS_ADDED
_SECONDS_OF_DAY = 86_400
_UNITS_PER_YEAR = {
    "YEAR": 1,
    "QUARTER": 4,
    "MONTH": 12,
    "WEEK": 53,
    "DAY": 366,
    "HOUR": 366 * 24,
    "MINUTE": 366 * 24 * 60,
    "SECOND": 366 * 24 * 3600,
    "MILLISECOND": 366 * 24 * 3_600_000,
}


def to_milliseconds(time: Column) -> Column:
    """The time without its microseconds: Flink's TIMESTAMP(3)."""
    return F.timestamp_millis(F.unix_millis(time))


def floor_time(call: Call, columns: Sequence[Column]) -> Column:
    """FLOOR(time TO unit)."""
    return _as_declared(call, floor_to_unit(_moment(call, 0, columns), _unit(call, 1)))


def ceil_time(call: Call, columns: Sequence[Column]) -> Column:
    """CEIL(time TO unit): the time itself where it is on a bound."""
    unit = _unit(call, 1)
    time = _moment(call, 0, columns)
    floor = floor_to_unit(time, unit)
    return _as_declared(call, F.when(floor == time, floor).otherwise(next_bound(floor, unit)))


def _as_declared(call: Call, time: Column) -> Column:
    if call.type.kind is TypeKind.TIME:
        return F.pmod(F.unix_millis(time), F.lit(_SECONDS_OF_DAY * 1000)).cast("int")
    return time.cast("date") if call.type.kind is TypeKind.DATE else time


def _moment(call: Call, place: int, columns: Sequence[Column]) -> Column:
    """An argument as Spark's TIMESTAMP; a TIME is one of the first day of 1970."""
    if call.arguments[place].type.kind is TypeKind.TIME:
        return F.timestamp_millis(columns[place].cast("bigint"))
    return columns[place].cast("timestamp")


def _unit(call: Call, position: int) -> str:
    unit = literal(call, position, str)
    if unit is None:
        raise JobError("JOB_FAILED", f"{call} names no unit of time.")
    return unit.upper().removeprefix("SQL_TSI_")


def _field(name: str) -> Builder:
    return lambda call, columns: FIELDS[name](_moment(call, 0, columns))


def _extract(call: Call, columns: Sequence[Column]) -> Column:
    unit = _unit(call, 0)
    if unit not in FIELDS:
        raise JobError("JOB_FAILED", f"EXTRACT has no {unit}.", remedy=f"Use one of {', '.join(FIELDS)}.")
    match call.arguments[1].type.kind:
        case TypeKind.INTERVAL_DAY:
            return part_of(columns[1], unit)
        case TypeKind.INTERVAL_YEAR:
            return part_of_months(columns[1], unit)
    return FIELDS[unit](_moment(call, 1, columns))


def _between(call: Call, columns: Sequence[Column]) -> Column:
    end, start = _moment(call, 0, columns), _moment(call, 1, columns)
    if call.type.kind is TypeKind.INTERVAL_YEAR:
        return months_between(start, end).cast("int")
    return end - start


def _to_timestamp(call: Call, columns: Sequence[Column]) -> Column:
    if call.arguments[0].type.is_integer:
        return _instant(columns[0].cast("bigint"))
    if len(columns) > 1:
        return to_milliseconds(F.try_to_timestamp(columns[0], checked_format(call, 1)))
    return to_milliseconds(F.when(columns[0].rlike(_DEFAULT_TIMESTAMP), columns[0].try_cast("timestamp")))


def _to_timestamp_ltz(call: Call, columns: Sequence[Column]) -> Column:
    if call.arguments[0].type.kind is TypeKind.STRING:
        return _in_zone(call, _to_timestamp(call, columns))
    precision = literal(call, 1, int) if len(columns) > 1 else _MILLISECOND_PRECISION
    if precision is not None:
        return _instant_of_fractions(columns[0], precision)
    found = F.when(columns[1] == 0, _instant_of_fractions(columns[0], 0))
    for digits in range(1, _DIGITS_OF_TIME + 1):
        found = found.when(columns[1] == digits, _instant_of_fractions(columns[0], digits))
    return found


def _instant_of_fractions(value: Column, digits: int) -> Column:
    """The time of a number since 1970 that counts seconds with so many digits behind the point."""
    if digits == 0:
        return _instant_of_seconds(value)
    whole = value.cast("bigint")
    if digits == _MILLISECOND_PRECISION:
        return _instant(whole)
    if digits <= _MICROSECOND_PRECISION:
        micros = F.try_multiply(whole, F.lit(10 ** (_MICROSECOND_PRECISION - digits)))
    else:
        unit = F.lit(10 ** (digits - _MICROSECOND_PRECISION))
        micros = F.call_function("div", whole - F.pmod(whole, unit), unit)
    return F.when(micros.between(_FIRST_MS * 1000, _LAST_MS * 1000 + 999), F.timestamp_micros(micros))


def _in_zone(call: Call, time: Column) -> Column:
    """The instant of a time in the zone that is the third argument; in the session's without one."""
    return time if len(call.arguments) < 3 else F.to_utc_timestamp(time, _known_zone(call, 2))


def _known_zone(call: Call, place: int) -> str:
    given = literal(call, place, str)
    zone = None if given is None else zone_name(given)
    if zone is None:
        raise JobError("JOB_FAILED", f"{call} names no time zone.", remedy="Use a name such as 'Asia/Tokyo'.")
    return zone


def _instant(millis: Column) -> Column:
    """The time of milliseconds since 1970; Spark ends the query at numbers beyond its range."""
    return F.when(millis.between(_FIRST_MS, _LAST_MS), F.timestamp_millis(millis))


def _instant_of_seconds(seconds: Column) -> Column:
    return F.when(seconds.between(_FIRST_MS // 1000, _LAST_MS // 1000), F.timestamp_seconds(seconds))


def _date_format(call: Call, columns: Sequence[Column]) -> Column:
    text = call.arguments[0].type.kind is TypeKind.STRING
    if len(columns) > 2:
        time = F.try_to_timestamp(columns[0], checked_format(call, 1)) if text else columns[0]
        return write_time(call, 2, time)
    return write_time(call, 1, columns[0].try_cast("timestamp") if text else columns[0])


def _from_unixtime(call: Call, columns: Sequence[Column]) -> Column:
    return write_time(call, 1, _instant_of_seconds(columns[0]))


def _unix_timestamp(call: Call, columns: Sequence[Column]) -> Column:
    if not columns:
        return F.unix_seconds(_began(F.current_timestamp()))
    if call.arguments[0].type.kind not in (TypeKind.STRING, TypeKind.NULL):
        return F.unix_seconds(_moment(call, 0, columns))
    time = F.try_to_timestamp(columns[0], checked_format(call, 1))
    return F.when(columns[0].isNotNull(), F.coalesce(F.unix_seconds(time), F.lit(_NO_UNIX_TIME)))


def _to_date(call: Call, columns: Sequence[Column]) -> Column:
    if len(columns) > 1:
        return F.try_to_timestamp(columns[0], checked_format(call, 1)).cast("date")
    return columns[0].try_cast("date")


def _timestamp_add(call: Call, columns: Sequence[Column]) -> Column:
    unit = _unit(call, 0)
    most = _MOST_YEARS_ADDED * _UNITS_PER_YEAR.get(unit, 1)
    moved = F.timestamp_add(unit, columns[1], columns[2])
    return _as_declared(call, F.when(columns[1].between(-most, most), moved))


def _timestamp_diff(call: Call, columns: Sequence[Column]) -> Column:
    return units_between(_unit(call, 0), _moment(call, 1, columns), _moment(call, 2, columns))


def _convert_tz(_call: Call, columns: Sequence[Column]) -> Column:
    return by_row(in_other_zone, "string", *columns)


def _date_format_tz(call: Call, columns: Sequence[Column]) -> Column:
    zone = _known_zone(call, len(columns) - 1)
    local = F.from_utc_timestamp(columns[0].cast("timestamp"), zone)
    return write_time(call, 1, local) if len(columns) > 2 else F.date_format(local, DEFAULT_FORMAT)


def _local_time(call: Call, columns: Sequence[Column]) -> Column:
    """The calendar and clock of an instant in a zone, as a time of the session's zone, which is UTC."""
    return F.from_utc_timestamp(columns[0], _zone_id(call))


def _instant_of(call: Call, columns: Sequence[Column]) -> Column:
    return F.to_utc_timestamp(columns[0], _zone_id(call))


def _zone_id(call: Call) -> str:
    """The zone by a name that Java has; what asks for it has checked that it is one."""
    return zone_name(literal(call, 1, str) or "UTC") or "UTC"


def _date(call: Call, place: int, columns: Sequence[Column]) -> Column:
    text = call.arguments[place].type.kind in (TypeKind.STRING, TypeKind.NULL)
    return columns[place].try_cast("date") if text else columns[place].cast("date")


def _moved_date(sign: int) -> Builder:
    def build(call: Call, columns: Sequence[Column]) -> Column:
        days = columns[1] * F.lit(sign)
        moved = F.date_add(_date(call, 0, columns), days.cast("int"))
        return F.when(columns[1].between(-_MOST_DAYS_ADDED, _MOST_DAYS_ADDED), F.date_format(moved, "yyyy-MM-dd"))

    return build


def _date_diff(call: Call, columns: Sequence[Column]) -> Column:
    return F.datediff(_date(call, 0, columns), _date(call, 1, columns))


def _began(now: Column) -> Column:
    """When the micro-batch began, kept out of the code that Spark makes of a plan.

    A constant is written into that code, which would be made, compiled and warmed again in every micro-batch. Sorting
    has no code made of it, whatever is sorted.
    """
    return F.array_sort(F.array(now))[0]


def _time_of_day(_call: Call, _columns: Sequence[Column]) -> Column:
    seconds = F.unix_seconds(_began(F.current_timestamp()))
    return (F.pmod(seconds, F.lit(_SECONDS_OF_DAY)) * 1000).cast("int")


def _now(_call: Call, _columns: Sequence[Column]) -> Column:
    # One time for a micro-batch; Flink reads the clock for each row.
    return to_milliseconds(_began(F.current_timestamp()))


TIMES: dict[str, Builder] = {
    "TO_TIMESTAMP": _to_timestamp,
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
    "TO_DATE": _to_date,
    "DATE_FORMAT": _date_format,
    "FROM_UNIXTIME": _from_unixtime,
    "UNIX_TIMESTAMP": _unix_timestamp,
    "YEAR": _field("YEAR"),
    "MONTH": _field("MONTH"),
    "DAYOFMONTH": _field("DAYOFMONTH"),
    "DAYOFWEEK": _field("DAYOFWEEK"),
    "HOUR": _field("HOUR"),
    "MINUTE": _field("MINUTE"),
    "SECOND": _field("SECOND"),
    "EXTRACT": _extract,
    "MINUS DATE": _between,
    "TIMESTAMPADD": _timestamp_add,
    "TIMESTAMPDIFF": _timestamp_diff,
    "CURRENT_TIMESTAMP": _now,
    "NOW": _now,
    "PROCTIME": _now,
    "CURRENT_ROW_TIMESTAMP": _now,
    "LOCALTIMESTAMP": _now,
    "LOCALTIME": _time_of_day,
    "CURRENT_TIME": _time_of_day,
    "CURRENT_DATE": lambda _call, _columns: _began(F.current_date()),
    "QUARTER": _field("QUARTER"),
    "WEEK": _field("WEEK"),
    "DAYOFYEAR": _field("DAYOFYEAR"),
    "CONVERT_TZ": _convert_tz,
    "DATE_FORMAT_TZ": _date_format_tz,
    "DATE_ADD": _moved_date(1),
    "DATE_SUB": _moved_date(-1),
    "DATEDIFF": _date_diff,
    "LOCAL_TIME": _local_time,
    "INSTANT_OF": _instant_of,
}
