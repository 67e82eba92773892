"""Names of up to three parts, PARTITION (column = value, ...), and hints between /*+ and */."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.parser.term_parser import parse_term
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.queries import Hint, TableSource
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.statements import PartitionValue
from millstream.streams.sql.syntax.tables import Path

__all__ = [
    "MAX_NAME_PARTS",
    "QUERY_HINTS",
    "TABLE_HINTS",
    "name_list",
    "name_term",
    "parse_hints",
    "parse_key",
    "parse_partition",
    "parse_path",
    "parse_table",
    "path_text",
    "split_path",
]


MAX_NAME_PARTS = 3
"""Parts of a table's, view's or function's name."""


def parse_path(cursor: Cursor, what: str, most: int = MAX_NAME_PARTS) -> Path:
    """The name that comes next, of one to `most` parts."""
    first = cursor.name(what)
    parts = [first.text]
    while cursor.take_symbol("."):
        if len(parts) == most:
            message = f"The name has more than {most} {'part' if most == 1 else 'parts'}."
            raise cursor.script.error("SQL_SYNTAX", message, cursor.since(first.span))
        parts.append(cursor.name(what).text)
    return Path(tuple(parts), cursor.since(first.span))


def path_text(parts: Sequence[str]) -> str:
    """The parts as one text, in back-ticks where a part would be read as several."""
    return ".".join(f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part for part in parts)


def split_path(text: str) -> tuple[str, ...]:
    """The parts that `path_text` joined."""
    parts, quoted, place = [""], False, 0
    while place < len(text):
        character = text[place]
        if character == "`" and quoted and text[place + 1 : place + 2] == "`":
            parts[-1] += "`"
            place += 1
        elif character == "`":
            quoted = not quoted
        elif character == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += character
        place += 1
    return tuple(parts)


def name_term(cursor: Cursor, what: str = "a column's name") -> NameTerm:
    """One column."""
    token = cursor.name(what)
    return NameTerm((token.text,), token.span)


def name_list(cursor: Cursor, what: str = "a column's name") -> tuple[NameTerm, ...]:
    """Columns in brackets."""
    cursor.need_symbol("(")
    names = [name_term(cursor, what)]
    while cursor.take_symbol(","):
        names.append(name_term(cursor, what))
    cursor.need_symbol(")")
    return tuple(names)


def parse_key(cursor: Cursor, what: str) -> tuple[str, Span]:
    """An option's or a setting's name, quoted or as bare words joined by points and dashes."""
    token = cursor.peek()
    if token is not None and token.kind is TokenKind.STRING:
        return cursor.advance().text, token.span
    if token is None or token.kind not in (TokenKind.WORD, TokenKind.NAME):
        raise cursor.expected_error(what)
    first = cursor.advance()
    parts, end = [first.text], first.span.end
    while (token := cursor.peek()) is not None and token.span.start == end:
        joins = token.is_symbol(".") or token.is_symbol("-")
        if not joins and token.kind not in (TokenKind.WORD, TokenKind.NUMBER):
            break
        parts.append(cursor.advance().text)
        end = token.span.end
    return "".join(parts), Span(first.span.start, end)


def parse_partition(cursor: Cursor) -> tuple[PartitionValue, ...]:
    """What stands behind PARTITION; a column without a value is dynamic."""
    cursor.need_symbol("(")
    values = []
    while True:
        column = name_term(cursor)
        values.append(PartitionValue(column, parse_term(cursor) if cursor.take_symbol("=") else None))
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    return tuple(values)


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
