"""DATE, TIME and TIMESTAMP literals: the digits that they are written with give the type its precision, as in Flink."""

from __future__ import annotations

import datetime
import re

from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.syntax.expressions import CastTerm, LiteralTerm, Term
from millstream.streams.sql.syntax.script import Span

__all__ = ["TIME_WORDS", "parse_time_literal"]

TIME_WORDS = ("DATE", "TIMESTAMP", "TIME")

_DATE = r"(\d{1,4})-(\d{1,2})-(\d{1,2})"
_TIME = r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d*))?"
_FORMS = {
    "DATE": (re.compile(_DATE), "Write DATE 'yyyy-MM-dd'."),
    "TIME": (re.compile(_TIME), "Write TIME 'hh:mm:ss', with .fff for milliseconds."),
    "TIMESTAMP": (re.compile(rf"{_DATE}(?:[ T]{_TIME})?"), "Write TIMESTAMP 'yyyy-MM-dd hh:mm:ss', with .ffffff."),
}
_MICROSECOND_DIGITS = 6
"""What a time holds; digits behind them are left out."""
_MILLISECOND_DIGITS = 3
"""What a time of day holds."""


def parse_time_literal(cursor: Cursor, word: str) -> Term:
    """The literal of one of the TIME_WORDS, which comes next. Raises SqlError where its text is no such time."""
    start = cursor.advance().span
    text = cursor.string().text
    span = cursor.since(start)
    pattern, remedy = _FORMS[word]
    found = pattern.fullmatch(text)
    try:
        if found is not None:
            return _term(word, [part or "" for part in found.groups()], span)
    except ValueError:
        pass
    raise cursor.script.error("SQL_SYNTAX", f"{text!r} is no {word}.", span, remedy=remedy)


def _term(word: str, parts: list[str], span: Span) -> Term:
    """Raises ValueError at a thirteenth month and its like."""
    if word == "DATE":
        year, month, day = map(int, parts)
        return LiteralTerm(datetime.date(year, month, day), span)
    fraction = parts.pop()
    numbers = [int(part or 0) for part in parts]
    if word == "TIME":
        hour, minute, second = numbers
        fraction = fraction[:_MILLISECOND_DIGITS]
        time = datetime.time(hour, minute, second, _microseconds(fraction))
        data_type = DataType(TypeKind.TIME, nullable=False, precision=len(fraction))
        return CastTerm(LiteralTerm(time.isoformat(), span), data_type, False, span)
    year, month, day, hour, minute, second = numbers
    value = datetime.datetime(year, month, day, hour, minute, second, _microseconds(fraction))
    return LiteralTerm(value, span, min(len(fraction), _MICROSECOND_DIGITS))


def _microseconds(fraction: str) -> int:
    return int(fraction[:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0"))
