"""Hints: what stands between /*+ and */ behind SELECT or a table, and the names of tables with theirs."""

from __future__ import annotations

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.syntax.queries import Hint, TableSource

__all__ = ["QUERY_HINTS", "TABLE_HINTS", "parse_hints", "parse_table"]

QUERY_HINTS = ("LOOKUP", "STATE_TTL", "BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "MULTI_JOIN")
"""Hints behind SELECT. The last four say how Flink joins and change nothing."""

TABLE_HINTS = ("OPTIONS",)
"""Hints behind a table."""


def parse_table(cursor: Cursor) -> TableSource:
    """A table's name of up to three parts with its hints, without an alias."""
    token = cursor.name("a table's name")
    parts = [token.text]
    while cursor.take_symbol("."):
        parts.append(cursor.member("a table's name").text)
    span = cursor.since(token.span)
    return TableSource(tuple(parts), span, hints=parse_hints(cursor, of_table=True))


def parse_hints(cursor: Cursor, *, of_table: bool) -> tuple[Hint, ...]:
    """The hints that come next, perhaps none: OPTIONS behind a table, the others behind SELECT.

    Raises SQL_UNSUPPORTED at a hint that is not known there.
    """
    hints: list[Hint] = []
    while cursor.take_symbol("/*+"):
        while not cursor.take_symbol("*/"):
            hints.append(_hint(cursor, TABLE_HINTS if of_table else QUERY_HINTS))
            cursor.take_symbol(",")
    return tuple(hints)


def _hint(cursor: Cursor, known: tuple[str, ...]) -> Hint:
    token = cursor.name("a hint or */")
    name = token.text.upper()
    if name not in known:
        elsewhere = name in (*QUERY_HINTS, *TABLE_HINTS)
        message = f"The hint {name} does not stand here." if elsewhere else f"The hint {token.text} is not supported."
        remedy = f"Behind {'a table' if known is TABLE_HINTS else 'SELECT'} can stand {', '.join(known)}."
        raise cursor.unsupported_error(message, token.span, remedy=remedy)
    cursor.need_symbol("(")
    arguments = [_argument(cursor)]
    while cursor.take_symbol(","):
        arguments.append(_argument(cursor))
    cursor.need_symbol(")")
    return Hint(name, tuple(arguments), cursor.since(token.span))


def _argument(cursor: Cursor) -> tuple[str, str]:
    token = cursor.peek()
    if token is None or token.kind not in (TokenKind.STRING, TokenKind.WORD, TokenKind.NAME):
        raise cursor.expected_error("a 'key'")
    cursor.advance()
    return token.text, cursor.string("a 'value'").text if cursor.take_symbol("=") else ""
