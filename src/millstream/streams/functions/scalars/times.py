"""Time functions. The session's zone is UTC; an invalid text gives NULL."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.functions.spec import DATE, ArgumentTypes, FunctionSpec, Origin
from millstream.streams.plan.types import BIGINT, INT, STRING, DataType, TypeKind

__all__ = ["INTERVAL_FIELDS", "TIMES", "WITHOUT_BRACKETS"]

INTERVAL_FIELDS = {
    TypeKind.INTERVAL_DAY: ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "EPOCH"),
    TypeKind.INTERVAL_YEAR: ("YEAR", "QUARTER", "MONTH"),
}
"""What EXTRACT takes of intervals."""

WITHOUT_BRACKETS = frozenset({"CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP"})
"""Functions that are written like a column."""

_TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)
_INSTANT = DataType(TypeKind.TIMESTAMP_LTZ, precision=3)
_DIGITS_OF_TIME = 9
_TIME = DataType(TypeKind.TIME, precision=0)
_OF_THE_CLOCK = ("HOUR", "MINUTE", "SECOND", "MILLISECOND")


def _instant(given: ArgumentTypes) -> DataType:
    """TIMESTAMP_LTZ of milliseconds, or of as many digits as the number counts."""
    digits = given.literal(1)
    if not isinstance(digits, int):
        return _INSTANT
    if not 0 <= digits <= _DIGITS_OF_TIME:
        raise TypeError(f"a precision of 0 to {_DIGITS_OF_TIME} digits")
    return replace(_INSTANT, precision=max(digits, 3))


def _unit(given: ArgumentTypes) -> str:
    return str(given.literal(0)).upper().removeprefix("SQL_TSI_")


def _type_of_shift(given: ArgumentTypes) -> DataType:
    """A date that is moved by units of the clock is no date any more."""
    time = given.types[2]
    by_clock = time.kind is TypeKind.DATE and _unit(given) in _OF_THE_CLOCK
    return _TIMESTAMP.as_nullable(time.nullable) if by_clock else time


def _between(given: ArgumentTypes) -> DataType:
    kind = TypeKind.INTERVAL_YEAR if given.literal(2) == "MONTH" else TypeKind.INTERVAL_DAY
    nullable = given.types[0].nullable or given.types[1].nullable
    return DataType(kind, nullable=nullable)


def _type_of_extract(given: ArgumentTypes) -> DataType:
    wanted = INTERVAL_FIELDS.get(given.types[1].kind)
    if wanted is not None and _unit(given) not in wanted:
        raise TypeError(f"one of the fields {', '.join(wanted)} of an {given.types[1].kind.value}")
    return BIGINT


def _type_of_count(given: ArgumentTypes) -> DataType:
    """An INT, as in Flink; milliseconds, which Flink does not count, would not fit."""
    return BIGINT if _unit(given) == "MILLISECOND" else INT


_FIELDS = (
    ("YEAR", "The year.", "1994"),
    ("QUARTER", "The quarter of the year, from 1.", "3"),
    ("MONTH", "The month, from 1.", "9"),
    ("WEEK", "The week of the year, from 1 (ISO).", "39"),
    ("DAYOFYEAR", "The day of the year, from 1.", "270"),
    ("DAYOFMONTH", "The day of the month, from 1.", "27"),
    ("DAYOFWEEK", "The day of the week, 1 is Sunday.", "3"),
)
_HOURS = (("HOUR", "The hour.", "13"), ("MINUTE", "The minute.", "14"), ("SECOND", "The second.", "15"))
_CLOCK = "The time of the micro-batch"

TIMES: tuple[FunctionSpec, ...] = (
    *(FunctionSpec(name, "time TIME", BIGINT, words, f"{name}(DATE '1994-09-27')", result) for name, words, result in _FIELDS),
    *(FunctionSpec(name, "time CLOCK", BIGINT, words, f"{name}(TIMESTAMP '1994-09-27 13:14:15')", result) for name, words, result in _HOURS),
    FunctionSpec("EXTRACT", "unit STRING, time CLOCK_OR_INTERVAL", _type_of_extract, "A field of a time, or of an interval.", "EXTRACT(DAY FROM DATE '2006-06-05')", "5", spelled="EXTRACT(unit FROM time)"),
    FunctionSpec("MINUS DATE", "end CLOCK, start CLOCK, unit STRING", _between, "The interval from one time to another; its units say whether it counts days and seconds or months.", "EXTRACT(DAY FROM (DATE '2026-03-01' - DATE '2026-02-01') DAY)", "28", spelled="(end - start) unit [TO unit]"),
    FunctionSpec("TO_TIMESTAMP", "text STRING_OR_INT [, format STRING]", _TIMESTAMP, "The time of a text; in Blink also of milliseconds since 1970.", "TO_TIMESTAMP('2026-01-02 03:04:05')", "2026-01-02 03:04:05.000"),
    FunctionSpec("TO_TIMESTAMP_LTZ", "value STRING_OR_NUMBER [, precision STRING_OR_INT [, zone STRING]]", _instant, "The instant of seconds (0), milliseconds (3), microseconds (6) and the like since 1970, or of a text, in a format and a zone.", "TO_TIMESTAMP_LTZ(1000, 3)", "1970-01-01 00:00:01.000"),
    FunctionSpec("TO_DATE", "text STRING [, format STRING]", DATE, "The date of a text.", "TO_DATE('2026-01-02')", "2026-01-02"),
    FunctionSpec("DATE_FORMAT", "time TIME_OR_STRING, format STRING [, other_format STRING]", STRING, "The time as text, in a pattern of Java; in Blink also a text of one pattern in another.", "DATE_FORMAT(TIMESTAMP '2026-01-02 03:04:05', 'yyyy/MM/dd HH')", "'2026/01/02 03'"),
    FunctionSpec("FROM_UNIXTIME", "seconds INT [, format STRING]", STRING, "Seconds since 1970 as text.", "FROM_UNIXTIME(44)", "'1970-01-01 00:00:44'"),
    FunctionSpec("UNIX_TIMESTAMP", "[text TIME_OR_STRING [, format STRING]]", BIGINT, "Seconds since 1970, of now, a text or (in Blink) a time; the least BIGINT for one that is no time.", "UNIX_TIMESTAMP('1970-01-01 00:01:00')", "60", deterministic=False),
    FunctionSpec("TIMESTAMPADD", "unit STRING, count INT, time TIME", _type_of_shift, "The time moved by units.", "TIMESTAMPADD(DAY, 2, DATE '2026-01-30')", "2026-02-01"),
    FunctionSpec("TIMESTAMPDIFF", "unit STRING, from TIME, to TIME", _type_of_count, "Whole units from one time to another; a month is whole where its day is reached, or at its end.", "TIMESTAMPDIFF(HOUR, TIMESTAMP '2026-01-01 00:00:00', TIMESTAMP '2026-01-02 01:30:00')", "25"),
    FunctionSpec("CONVERT_TZ", "text STRING, from_zone STRING, to_zone STRING", STRING, "The text of a time in another zone.", "CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "'1969-12-31 16:00:00'"),
    FunctionSpec("DATE_ADD", "date TIME_OR_STRING, days INT", STRING, "The date some days later, as text.", "DATE_ADD('2026-01-30', 2)", "'2026-02-01'", Origin.BLINK),
    FunctionSpec("DATE_SUB", "date TIME_OR_STRING, days INT", STRING, "The date some days before, as text.", "DATE_SUB('2026-02-01', 2)", "'2026-01-30'", Origin.BLINK),
    FunctionSpec("DATEDIFF", "end TIME_OR_STRING, start TIME_OR_STRING", INT, "The days from the second date to the first.", "DATEDIFF('2026-03-01', '2026-02-01')", "28", Origin.BLINK),
    FunctionSpec("DATE_FORMAT_TZ", "time TIME, format_or_zone STRING [, zone STRING]", STRING, "The time as text in a zone.", "DATE_FORMAT_TZ(TO_TIMESTAMP_LTZ(0, 3), 'HH:mm', 'Asia/Tokyo')", "'09:00'", Origin.BLINK, spelled="DATE_FORMAT_TZ(time [, format], zone)"),
    FunctionSpec("CURRENT_TIMESTAMP", "", _INSTANT, f"{_CLOCK}.", "CURRENT_TIMESTAMP", deterministic=False),
    FunctionSpec("NOW", "", _INSTANT, f"{_CLOCK}.", "NOW()", deterministic=False),
    FunctionSpec("PROCTIME", "", _INSTANT, f"{_CLOCK}.", "PROCTIME()", deterministic=False),
    FunctionSpec("CURRENT_ROW_TIMESTAMP", "", _INSTANT, f"{_CLOCK}.", "CURRENT_ROW_TIMESTAMP()", deterministic=False),
    FunctionSpec("LOCALTIMESTAMP", "", _TIMESTAMP, f"{_CLOCK}, without a zone.", "LOCALTIMESTAMP", deterministic=False),
    FunctionSpec("LOCALTIME", "", _TIME, f"{_CLOCK} of day.", "LOCALTIME", deterministic=False),
    FunctionSpec("CURRENT_TIME", "", _TIME, f"{_CLOCK} of day.", "CURRENT_TIME", deterministic=False),
    FunctionSpec("CURRENT_DATE", "", DATE, f"{_CLOCK}, as a date.", "CURRENT_DATE", deterministic=False),
)  # fmt: skip
"""Their rows of the registry."""
