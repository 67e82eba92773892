"""The calendar of time functions on plain numbers (microseconds, days since 1970), and time zones by name."""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable
from functools import lru_cache
from zoneinfo import ZoneInfo

__all__ = [
    "DAY_US",
    "MONTHS_OF_UNITS",
    "UNITS_US",
    "add_months",
    "add_units",
    "ceil_to_unit",
    "field_of",
    "floor_to_unit",
    "in_other_zone",
    "part_of",
    "units_between",
    "zone_name",
    "zone_of",
]


_CACHED_ZONES = 1_000
_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?")
_SHORT = {
    "PST": "America/Los_Angeles",
    "MST": "America/Denver",
    "CST": "America/Chicago",
    "EST": "America/New_York",
    "JST": "Asia/Tokyo",
    "IST": "Asia/Kolkata",
    "CET": "Europe/Paris",
}
"""Those of Java's short names that Python has not, or has without summer time."""

_MINUTES_OF_DAY = 1440


@lru_cache(maxsize=_CACHED_ZONES)
def zone_of(name: str) -> datetime.tzinfo | None:
    """The zone of a name such as `Asia/Tokyo`, `PST` or `GMT-08:00`; None if there is none."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes >= _MINUTES_OF_DAY:
            return None
        return datetime.timezone(datetime.timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    try:
        return ZoneInfo(_SHORT.get(name, name))
    except (ValueError, OSError, LookupError):
        return None


def zone_name(name: str) -> str | None:
    """The zone's name as Java takes it: one of a place, or an offset such as `+05:30`; None if there is none."""
    zone = zone_of(name)
    if isinstance(zone, ZoneInfo):
        return zone.key
    offset = None if zone is None else zone.utcoffset(None)
    if offset is None:
        return None
    minutes = offset // datetime.timedelta(minutes=1)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def in_other_zone(text: str, source: str, target: str) -> str | None:
    """A time `yyyy-MM-dd HH:mm:ss` of one zone as text in another; None for a bad text or zone."""
    before, after = zone_of(source), zone_of(target)
    if before is None or after is None:
        return None
    try:
        time = datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=before)
        return time.astimezone(after).strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    except (ValueError, OverflowError):
        return None


DAY_US = 86_400_000_000
"""Microseconds of a day."""

UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY_US,
    "WEEK": 7 * DAY_US,
}
"""The units of one length, in microseconds."""

MONTHS_OF_UNITS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1200, "MILLENNIUM": 12_000}
"""The units of months."""

_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()
_FIRST_US, _LAST_US = (1 - _FIRST_DAY) * DAY_US, (datetime.date.max.toordinal() + 1 - _FIRST_DAY) * DAY_US - 1
_SUNDAY_BEFORE_1970 = -4
_MONTHS_BEFORE = {"CENTURY": 12, "MILLENNIUM": 12}
"""Centuries begin in the years that end with 1."""


def _date(days: int) -> datetime.date:
    return datetime.date.fromordinal(days + _FIRST_DAY)


def _days(year: int, month: int, day: int) -> int:
    return datetime.date(year, month, day).toordinal() - _FIRST_DAY


def add_months(days: int, months: int) -> int | None:
    """The date so many months later; the last of the month where that has no such day."""
    try:
        date = _date(days)
        year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
        return _days(year, month + 1, min(date.day, calendar.monthrange(year, month + 1)[1]))
    except (ValueError, OverflowError):
        return None


def add_units(us: int, unit: str, count: int) -> int | None:
    """The time so many units later."""
    months = MONTHS_OF_UNITS.get(unit)
    if months is None:
        found = us + count * UNITS_US[unit]
        return found if _FIRST_US <= found <= _LAST_US else None
    day, rest = divmod(us, DAY_US)
    date = add_months(day, count * months)
    return None if date is None else date * DAY_US + rest


def units_between(start_us: int, end_us: int, unit: str) -> int | None:
    """The whole units from one time to another, without what is below milliseconds."""
    start_ms, end_ms = start_us // 1000, end_us // 1000
    months = MONTHS_OF_UNITS.get(unit)
    if months is None:
        return _quotient((end_ms - start_ms) * 1000, UNITS_US[unit])
    try:
        return _quotient(_months_between(start_ms, end_ms), months)
    except (ValueError, OverflowError):
        return None


def _months_between(start_ms: int, end_ms: int) -> int:
    (start, start_clock), (end, end_clock) = (divmod(ms * 1000, DAY_US) for ms in (start_ms, end_ms))
    months = _months_of_dates(start, end) if start <= end else -_months_of_dates(end, start)
    # The clock counts on the very day alone, and as Flink has it also where the second time is the earlier one.
    return months - 1 if end_clock < start_clock and add_months(start, months) == end else months


def _months_of_dates(first: int, last: int) -> int:
    one, other = _date(first), _date(last)
    months = (other.year - one.year) * 12 + other.month - one.month
    reached = other.day >= min(one.day, calendar.monthrange(other.year, other.month)[1])
    return months if reached else months - 1


def _quotient(number: int, divisor: int) -> int:
    """Cut towards 0."""
    return number // divisor if number >= 0 else -(-number // divisor)


def floor_to_unit(us: int, unit: str) -> int | None:
    """The bound of the unit at or before the time; weeks begin on Sundays, as in Flink."""
    if unit == "WEEK":
        day = us // DAY_US
        return (day - (day - _SUNDAY_BEFORE_1970) % 7) * DAY_US
    months = MONTHS_OF_UNITS.get(unit)
    if months is None:
        return us - us % UNITS_US[unit]
    try:
        date = _date(us // DAY_US)
        shift = _MONTHS_BEFORE.get(unit, 0)
        month = date.year * 12 + date.month - 1 - shift
        year, of_year = divmod(month - month % months + shift, 12)
        return _days(year, of_year + 1, 1) * DAY_US
    except (ValueError, OverflowError):
        return None


def ceil_to_unit(us: int, unit: str) -> int | None:
    """The bound of the unit at or behind the time."""
    floor = floor_to_unit(us, unit)
    return floor if floor is None or floor == us else add_units(floor, unit, 1)


_DATE_FIELDS: dict[str, Callable[[datetime.date], int]] = {
    "YEAR": lambda date: date.year,
    "ISOYEAR": lambda date: date.isocalendar().year,
    "DECADE": lambda date: date.year // 10,
    "CENTURY": lambda date: (date.year + 99) // 100,
    "MILLENNIUM": lambda date: (date.year + 999) // 1000,
    "QUARTER": lambda date: (date.month + 2) // 3,
    "MONTH": lambda date: date.month,
    "WEEK": lambda date: date.isocalendar().week,
    "DAY": lambda date: date.day,
    "DOY": lambda date: date.timetuple().tm_yday,
    "DOW": lambda date: date.isoweekday() % 7 + 1,
    "ISODOW": lambda date: date.isoweekday(),
}


def field_of(us: int, unit: str) -> int | None:
    """What EXTRACT gives of a time; DOW is 1 on Sundays, ISODOW on Mondays."""
    if unit == "EPOCH":
        return us // UNITS_US["SECOND"]
    read = _DATE_FIELDS.get(unit)
    if read is not None:
        try:
            return read(_date(us // DAY_US))
        except (ValueError, OverflowError):
            return None
    whole, part = _CLOCK[unit]
    return us % whole * 1000 // part if unit == "NANOSECOND" else us % whole // part


def part_of(length: int, unit: str) -> int:
    """What EXTRACT gives of an interval of microseconds, or for units of months of months; cut towards 0."""
    if unit == "EPOCH":
        return _quotient(length, UNITS_US["SECOND"])
    if unit == "QUARTER":
        return _quotient(_remainder(length, 12) - 1, 3) + 1
    if unit in MONTHS_OF_UNITS:
        return _remainder(length, 12) if unit == "MONTH" else _quotient(length, MONTHS_OF_UNITS[unit])
    if unit == "DAY":
        return _quotient(length, DAY_US)
    whole, part = _CLOCK[unit]
    return _quotient(_remainder(length, whole), part)


def _remainder(number: int, divisor: int) -> int:
    """With the sign of the number."""
    return number % divisor if number >= 0 else -(-number % divisor)


_CLOCK = {
    "HOUR": (DAY_US, UNITS_US["HOUR"]),
    "MINUTE": (UNITS_US["HOUR"], UNITS_US["MINUTE"]),
    "SECOND": (UNITS_US["MINUTE"], UNITS_US["SECOND"]),
    "MILLISECOND": (UNITS_US["SECOND"], UNITS_US["MILLISECOND"]),
    "MICROSECOND": (UNITS_US["SECOND"], 1),
    "NANOSECOND": (UNITS_US["SECOND"], 1),
}
"""What a field of the clock is counted in, and its own length."""
