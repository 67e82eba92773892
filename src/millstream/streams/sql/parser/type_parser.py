"""Flink's types as they are written in SQL."""

from __future__ import annotations

from millstream.streams.plan.types import INT, MAX_DIGITS, DataType, Field, TypeKind
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.syntax.suggestions import did_you_mean

__all__ = ["parse_type"]

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
