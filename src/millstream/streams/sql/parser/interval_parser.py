"""INTERVAL literals (amounts of one unit, and of several such as DAY TO SECOND), and the interval between two times."""

from __future__ import annotations

import datetime
import decimal
import re

from millstream.streams.errors import SqlError
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.syntax.expressions import CallTerm, IntervalTerm, LiteralTerm, Operation, Term
from millstream.streams.sql.syntax.script import Span

__all__ = ["MAX_INTERVAL", "parse_amount", "parse_interval", "parse_span"]

_UNITS_S = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}
_UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_UNITS_OF_SPANS = ("DAY", "HOUR", "MINUTE", "SECOND")
_MICROSECONDS = 1_000_000

MAX_INTERVAL = datetime.timedelta(days=3_660_000)
"""About 10,000 years. A time moved by more would leave the range that engines can hold."""


def parse_interval(cursor: Cursor) -> IntervalTerm:
    """INTERVAL ['-'] 'n' UNIT, also with fractions of seconds, DAY TO SECOND and YEAR TO MONTH."""
    start = cursor.here()
    cursor.need("INTERVAL")
    return _amount(cursor, start)


def parse_amount(cursor: Cursor) -> IntervalTerm:
    """'n' UNIT, as EMIT has it without the word INTERVAL, which may stand there all the same."""
    return parse_interval(cursor) if cursor.sees("INTERVAL") else _amount(cursor, cursor.here())


def _amount(cursor: Cursor, start: Span) -> IntervalTerm:
    sign = "-" if cursor.take_symbol("-") else ""
    text = cursor.string("a quoted amount, as in INTERVAL '10' SECOND").text.strip().removeprefix("+")
    text = text.removeprefix("-") if sign and text.startswith("-") else sign + text
    unit = _unit(cursor)
    if cursor.take("TO"):
        return _parts(cursor, text, unit, _unit(cursor), start)
    if unit in _UNITS_S and re.fullmatch(r"-?\d{1,9}(\.\d{1,6})?", text, re.ASCII):
        return _of_seconds(cursor, decimal.Decimal(text) * _UNITS_S[unit], start)
    if unit in _UNITS_MONTHS and re.fullmatch(r"-?\d{1,4}", text, re.ASCII):
        return IntervalTerm(None, int(text) * _UNITS_MONTHS[unit], cursor.since(start))
    raise _no_interval(cursor, start)


def _unit(cursor: Cursor) -> str:
    """A unit, perhaps with its number of digits behind it, which says nothing about the value."""
    unit = cursor.name("a unit such as SECOND").text.upper().removesuffix("S")
    if cursor.take_symbol("("):
        while cursor.advance().text != ")":
            pass
    return unit


def parse_span(cursor: Cursor, term: Term, start: Span) -> Term:
    """The interval of (end - start) DAY TO SECOND, whose brackets were read; the term itself where no unit follows."""
    if not isinstance(term, Operation) or term.operator != "-" or not _sees_unit(cursor):
        return term
    here = cursor.here()
    units = [_unit(cursor)]
    if cursor.take("TO"):
        units.append(_unit(cursor))
    of_months = [unit in _UNITS_MONTHS for unit in units]
    if any(of_months) != all(of_months):
        message, remedy = f"{' TO '.join(units)} is no range of an interval.", "Use YEAR TO MONTH or DAY TO SECOND."
        raise cursor.script.error("SQL_SYNTAX", message, cursor.since(here), remedy=remedy)
    family = LiteralTerm("MONTH" if of_months[0] else "SECOND", here)
    return CallTerm("MINUS DATE", (*term.operands, family), cursor.since(start), here)


def _sees_unit(cursor: Cursor) -> bool:
    return any(cursor.sees(unit) for unit in (*_UNITS_S, *_UNITS_MONTHS))


def _parts(cursor: Cursor, text: str, unit: str, to: str, start: Span) -> IntervalTerm:
    """INTERVAL '1 02:03:04' DAY TO SECOND and its shorter kin; a sign in front counts for all parts."""
    sign = -1 if text.startswith("-") else 1
    bare = text.removeprefix("-")
    if (unit, to) == ("YEAR", "MONTH") and (found := re.fullmatch(r"(\d{1,4})-(\d{1,2})", bare, re.ASCII)):
        return IntervalTerm(None, sign * (int(found[1]) * 12 + int(found[2])), cursor.since(start))
    parts = re.split(r"[ :]", bare)
    if unit not in _UNITS_OF_SPANS or to not in _UNITS_OF_SPANS:
        raise _no_interval(cursor, start)
    wanted = _UNITS_OF_SPANS[_UNITS_OF_SPANS.index(unit) : _UNITS_OF_SPANS.index(to) + 1]
    well_formed = all(re.fullmatch(r"\d{1,9}(\.\d{1,6})?", part, re.ASCII) for part in parts)
    if len(wanted) < 2 or len(parts) != len(wanted) or not well_formed:
        raise _no_interval(cursor, start)
    seconds = sum(decimal.Decimal(part) * _UNITS_S[name] for part, name in zip(parts, wanted, strict=True))
    return _of_seconds(cursor, sign * decimal.Decimal(seconds), start)


def _of_seconds(cursor: Cursor, seconds: decimal.Decimal, start: Span) -> IntervalTerm:
    if abs(seconds) > MAX_INTERVAL.total_seconds():
        message = f"An interval has at most {MAX_INTERVAL.days} days."
        raise cursor.script.error("SQL_SYNTAX", message, cursor.since(start))
    return IntervalTerm(datetime.timedelta(microseconds=int(seconds * _MICROSECONDS)), 0, cursor.since(start))


def _no_interval(cursor: Cursor, start: Span) -> SqlError:
    span = cursor.since(start)
    return cursor.script.error("SQL_SYNTAX", f"{cursor.script.text[span.start : span.end]} is no interval.", span)
