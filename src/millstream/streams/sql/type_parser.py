"""Flink's types as they are written in SQL."""

from __future__ import annotations

from millstream.streams.plan.types import DataType, Field, TypeKind
from millstream.streams.sql.cursor import Cursor
from millstream.streams.sql.lexer import TokenKind

__all__ = ["parse_type"]

_PLAIN = {
    "BOOLEAN": TypeKind.BOOLEAN, "TINYINT": TypeKind.TINYINT, "SMALLINT": TypeKind.SMALLINT, "INT": TypeKind.INT,
    "INTEGER": TypeKind.INT, "BIGINT": TypeKind.BIGINT, "FLOAT": TypeKind.FLOAT, "REAL": TypeKind.FLOAT,
    "STRING": TypeKind.STRING, "BYTES": TypeKind.BYTES, "DATE": TypeKind.DATE,
}  # fmt: skip
_SIZED = {
    "CHAR": TypeKind.STRING, "VARCHAR": TypeKind.STRING, "BINARY": TypeKind.BYTES, "VARBINARY": TypeKind.BYTES,
    "TIME": TypeKind.TIME, "TIMESTAMP": TypeKind.TIMESTAMP, "TIMESTAMP_LTZ": TypeKind.TIMESTAMP_LTZ,
}  # fmt: skip
_DEFAULT_FRACTION = 6
_DEFAULT_DIGITS = 10
_MAX_DIGITS = 38


def parse_type(cursor: Cursor) -> DataType:
    """The type that comes next, with [NOT] NULL behind it."""
    data_type = _parse_bare(cursor)
    if cursor.take("NOT", "NULL"):
        return data_type.as_nullable(False)
    cursor.take("NULL")
    return data_type


def _parse_bare(cursor: Cursor) -> DataType:
    token = cursor.peek()
    if token is None or token.kind is not TokenKind.WORD:
        raise cursor.expected("a type")
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
        return _sized(cursor, word)
    if word in ("ARRAY", "MAP"):
        cursor.advance()
        cursor.need_symbol("<")
        elements = [parse_type(cursor)]
        if word == "MAP":
            cursor.need_symbol(",")
            elements.append(parse_type(cursor))
        cursor.need_symbol(">")
        return DataType(TypeKind[word], elements=tuple(elements))
    if word == "ROW":
        return _row(cursor)
    if word in ("MULTISET", "INTERVAL", "RAW", "VARIANT"):
        raise cursor.unsupported(f"Columns of type {word} are not supported.")
    raise cursor.script.error("SQL_SYNTAX", f"{token.text!r} is no type.", token.span)


def _number(cursor: Cursor) -> int:
    token = cursor.peek()
    if token is None or token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
        raise cursor.expected("a whole number")
    return int(cursor.advance().text)


def _decimal(cursor: Cursor) -> DataType:
    start = cursor.advance().span
    digits, scale = _DEFAULT_DIGITS, 0
    if cursor.take_symbol("("):
        digits = _number(cursor)
        if cursor.take_symbol(","):
            scale = _number(cursor)
        cursor.need_symbol(")")
    if not 1 <= digits <= _MAX_DIGITS or scale > digits:
        message = (
            f"DECIMAL({digits}, {scale}) is not possible: 1 to {_MAX_DIGITS} digits, at most as many behind the point."
        )
        raise cursor.script.error("SQL_TYPE", message, cursor.since(start))
    return DataType(TypeKind.DECIMAL, precision=digits, scale=scale)


def _sized(cursor: Cursor, word: str) -> DataType:
    start = cursor.advance().span
    kind = _SIZED[word]
    precision: int | None = None
    if cursor.take_symbol("("):
        precision = _number(cursor)
        cursor.need_symbol(")")
    if kind in (TypeKind.STRING, TypeKind.BYTES) and precision == 0:
        raise cursor.script.error("SQL_TYPE", f"{word} has a length of 1 or more.", cursor.since(start))
    if kind in (TypeKind.TIME, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ):
        precision = _DEFAULT_FRACTION if precision is None else precision
        if precision > 9:
            raise cursor.script.error("SQL_TYPE", f"{word} has 0 to 9 digits of seconds.", cursor.since(start))
    if word == "TIMESTAMP":
        if cursor.take("WITH", "LOCAL", "TIME", "ZONE"):
            kind = TypeKind.TIMESTAMP_LTZ
        elif cursor.sees("WITH", "TIME", "ZONE"):
            raise cursor.unsupported("TIMESTAMP WITH TIME ZONE is not supported.", remedy="Use TIMESTAMP_LTZ.")
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
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(closing)
    return DataType(TypeKind.ROW, fields=tuple(fields))
