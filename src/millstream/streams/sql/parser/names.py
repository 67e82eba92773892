"""Names of up to three parts: catalog, database and what is in it."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.tables import Path

__all__ = ["MAX_NAME_PARTS", "name_list", "name_term", "parse_key", "parse_path", "path_text", "split_path"]

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
