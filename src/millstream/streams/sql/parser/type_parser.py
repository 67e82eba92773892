"""Flink's type syntax, and literals of times and intervals."""

from __future__ import annotations

import datetime
import decimal
import re

from millstream.streams.errors import SqlError
from millstream.streams.plan.types import INT, MAX_DIGITS, DataType, Field, TypeKind
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.syntax.expressions import CallTerm, CastTerm, IntervalTerm, LiteralTerm, Operation, Term
from millstream.streams.sql.syntax.script import Span, did_you_mean

__all__ = [
    "MAX_INTERVAL",
    "TIME_WORDS",
    "parse_amount",
    "parse_interval",
    "parse_span",
    "parse_time_literal",
    "parse_type",
]


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
    unit = _interval_unit(cursor)
    if cursor.take("TO"):
        return _parts(cursor, text, unit, _interval_unit(cursor), start)
    if unit in _UNITS_S and re.fullmatch(r"-?\d{1,9}(\.\d{1,6})?", text, re.ASCII):
        return _of_seconds(cursor, decimal.Decimal(text) * _UNITS_S[unit], start)
    if unit in _UNITS_MONTHS and re.fullmatch(r"-?\d{1,4}", text, re.ASCII):
        return IntervalTerm(None, int(text) * _UNITS_MONTHS[unit], cursor.since(start))
    raise _no_interval(cursor, start)


def _interval_unit(cursor: Cursor) -> str:
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
    units = [_interval_unit(cursor)]
    if cursor.take("TO"):
        units.append(_interval_unit(cursor))
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


_PLAIN = {
    "BOOLEAN": TypeKind.BOOLEAN, "TINYINT": TypeKind.TINYINT, "SMALLINT": TypeKind.SMALLINT, "INT": TypeKind.INT,
    "INTEGER": TypeKind.INT, "BIGINT": TypeKind.BIGINT, "FLOAT": TypeKind.FLOAT, "REAL": TypeKind.FLOAT,
    "STRING": TypeKind.STRING, "DATE": TypeKind.DATE, "VARIANT": TypeKind.VARIANT,
}  # fmt: skip
_SIZED = {
    "CHAR": TypeKind.STRING, "CHARACTER": TypeKind.STRING, "VARCHAR": TypeKind.STRING, "BINARY": TypeKind.BYTES,
    "VARBINARY": TypeKind.BYTES, "BYTES": TypeKind.BYTES, "TIME": TypeKind.TIME, "TIMESTAMP": TypeKind.TIMESTAMP,
    "TIMESTAMP_LTZ": TypeKind.TIMESTAMP_LTZ,
}  # fmt: skip
_OTHERS = ("DOUBLE", "DECIMAL", "DEC", "NUMERIC", "ARRAY", "MAP", "MULTISET", "ROW", "INTERVAL")
_INTERVAL_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_FIXED = ("CHAR", "CHARACTER", "BINARY")
_ANY_LENGTH = 2**31 - 1
_DEFAULT_FRACTION = 6
_DEFAULT_DIGITS = 10


def parse_type(cursor: Cursor) -> DataType:
    """The type that comes next, with [NOT] NULL and ARRAY or MULTISET behind it.

    A MULTISET is the MAP from its values to how often each is in it, as in Flink's rows and JSON.
    """
    data_type = _parse_bare(cursor)
    while True:
        if cursor.take("NOT", "NULL"):
            data_type = data_type.as_nullable(False)
        elif cursor.take("NULL"):
            data_type = data_type.as_nullable()
        elif cursor.take("ARRAY"):
            data_type = DataType(TypeKind.ARRAY, elements=(data_type,))
        elif cursor.take("MULTISET"):
            data_type = _multiset(data_type)
        else:
            return data_type


def _parse_bare(cursor: Cursor) -> DataType:
    token = cursor.peek()
    if token is None or token.kind is not TokenKind.WORD:
        raise cursor.expected_error("a type")
    word = token.text.upper()
    if word in _PLAIN:
        cursor.advance()
        return DataType(_PLAIN[word])
    if word == "DOUBLE":
        cursor.advance()
        cursor.take("PRECISION")
        return DataType(TypeKind.DOUBLE)
    if word in ("DECIMAL", "DEC", "NUMERIC"):
        return _decimal(cursor)
    if word in _SIZED:
        return _parse_sized(cursor, word)
    if word in ("ARRAY", "MAP", "MULTISET"):
        cursor.advance()
        cursor.need_symbol("<")
        elements = [parse_type(cursor)]
        if word == "MAP":
            cursor.need_symbol(",")
            elements.append(parse_type(cursor))
        cursor.need_symbol(">")
        return _multiset(elements[0]) if word == "MULTISET" else DataType(TypeKind[word], elements=tuple(elements))
    if word == "ROW":
        return _row(cursor)
    if word == "INTERVAL":
        return _interval(cursor)
    if word in ("RAW", "STRUCTURED", "BITMAP", "GEOGRAPHY"):
        raise cursor.unsupported_error(f"The type {word} is not supported.", remedy="Use BYTES, STRING or ROW<...>.")
    near = did_you_mean(word, (*_PLAIN, *_SIZED, *_OTHERS))
    raise cursor.script.error("SQL_SYNTAX", f"{token.text!r} is no type.", token.span, remedy=near or None)


def _multiset(element: DataType) -> DataType:
    return DataType(TypeKind.MAP, elements=(element, INT.as_nullable(False)))


def _interval(cursor: Cursor) -> DataType:
    """INTERVAL YEAR [TO MONTH], MONTH, or from DAY to SECOND in any part; the numbers of digits say nothing here."""
    cursor.advance()
    units = [_unit(cursor)]
    if cursor.take("TO"):
        units.append(_unit(cursor))
    kinds = {TypeKind.INTERVAL_YEAR if unit in ("YEAR", "MONTH") else TypeKind.INTERVAL_DAY for unit in units}
    if len(kinds) == 2:
        raise cursor.expected_error("units that are both of months, or both of time, before this")
    return DataType(kinds.pop())


def _unit(cursor: Cursor) -> str:
    unit = next((unit for unit in _INTERVAL_UNITS if cursor.take(unit)), None)
    if unit is None:
        raise cursor.expected_error(f"one of {', '.join(_INTERVAL_UNITS)}")
    if cursor.take_symbol("("):
        _number(cursor)
        cursor.need_symbol(")")
    return unit


def _number(cursor: Cursor) -> int:
    token = cursor.peek()
    if token is None or token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
        raise cursor.expected_error("a whole number")
    return int(cursor.advance().text)


def _decimal(cursor: Cursor) -> DataType:
    start = cursor.advance().span
    digits, scale = _DEFAULT_DIGITS, 0
    if cursor.take_symbol("("):
        digits = _number(cursor)
        if cursor.take_symbol(","):
            scale = _number(cursor)
        cursor.need_symbol(")")
    if not 1 <= digits <= MAX_DIGITS or scale > digits:
        message = (
            f"DECIMAL({digits}, {scale}) is not possible: 1 to {MAX_DIGITS} digits, at most as many behind the point."
        )
        raise cursor.script.error("SQL_TYPE", message, cursor.since(start))
    return DataType(TypeKind.DECIMAL, precision=digits, scale=scale)


def _parse_sized(cursor: Cursor, word: str) -> DataType:
    start = cursor.advance().span
    kind = _SIZED[word]
    precision: int | None = None
    varying = word in _FIXED and cursor.take("VARYING")
    if cursor.take_symbol("("):
        precision = _number(cursor)
        cursor.need_symbol(")")
    if kind in (TypeKind.STRING, TypeKind.BYTES):
        if precision == 0:
            raise cursor.script.error("SQL_TYPE", f"{word} has a length of 1 or more.", cursor.since(start))
        fixed = word in _FIXED and not varying
        if fixed and precision is None:
            precision = 1
        return DataType(kind, precision=None if precision == _ANY_LENGTH else precision, fixed=fixed)
    if kind in (TypeKind.TIME, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ):
        whole = 0 if kind is TypeKind.TIME else _DEFAULT_FRACTION
        precision = whole if precision is None else precision
        if precision > 9:
            raise cursor.script.error("SQL_TYPE", f"{word} has 0 to 9 digits of seconds.", cursor.since(start))
    if word == "TIMESTAMP":
        if cursor.take("WITH", "LOCAL", "TIME", "ZONE"):
            kind = TypeKind.TIMESTAMP_LTZ
        elif cursor.sees("WITH", "TIME", "ZONE"):
            raise cursor.unsupported_error("TIMESTAMP WITH TIME ZONE is not supported.", remedy="Use TIMESTAMP_LTZ.")
        else:
            cursor.take("WITHOUT", "TIME", "ZONE")
    return DataType(kind, precision=precision)


def _row(cursor: Cursor) -> DataType:
    cursor.advance()
    closing = ">" if cursor.take_symbol("<") else ")"
    if closing == ")":
        cursor.need_symbol("(")
    fields: list[Field] = []
    while True:
        name = cursor.name("a field's name")
        if any(name.text == field.name for field in fields):
            raise cursor.script.error("SQL_SYNTAX", f'Two fields are called "{name.text}".', name.span)
        fields.append(Field(name.text, parse_type(cursor)))
        cursor.take("COMMENT")
        token = cursor.peek()
        if token is not None and token.kind is TokenKind.STRING:
            cursor.advance()
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(closing)
    return DataType(TypeKind.ROW, fields=tuple(fields))
