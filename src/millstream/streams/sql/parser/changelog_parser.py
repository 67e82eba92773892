"""TO_CHANGELOG and FROM_CHANGELOG in FROM, with their arguments by place or by name."""

from __future__ import annotations

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.names import name_list
from millstream.streams.sql.parser.window_parser import parse_partition, parse_rows
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.queries import ChangelogSource, SubquerySource, TableSource
from millstream.streams.sql.syntax.script import Span

__all__ = ["CHANGELOG_FUNCTIONS", "parse_changelog"]

CHANGELOG_FUNCTIONS = ("TO_CHANGELOG", "FROM_CHANGELOG")

_ORDER = ("INPUT", "OP", "OP_MAPPING")
_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    # Deletions always come with all columns.
    "TO_CHANGELOG": {"PRODUCES_FULL_DELETES": ("TRUE", "FALSE")},
    # What becomes of a row whose code is in no pair of the map; Flink has had both names for it.
    "FROM_CHANGELOG": dict.fromkeys(("ERROR_HANDLING", "INVALID_OP_HANDLING"), ("FAIL", "SKIP")),
}
"""Further arguments and what they may be."""


def parse_changelog(cursor: Cursor, start: Span) -> ChangelogSource:
    """The call of either function, whose name comes next."""
    function = cursor.advance().text.upper()
    cursor.need_symbol("(")
    table: TableSource | SubquerySource | None = None
    partition: tuple[NameTerm, ...] = ()
    op: tuple[NameTerm, ...] = ()
    mapping: tuple[tuple[str, str, Span], ...] = ()
    seen: set[str] = set()
    handling = ""
    while True:
        name = _argument_name(cursor, function) or _next(cursor, function, seen)
        if name in seen:
            raise cursor.script.error("SQL_SYNTAX", f"{function} takes each argument once.", cursor.here())
        seen.add(name)
        match name:
            case "INPUT":
                table = parse_rows(cursor)
                if cursor.take("PARTITION", "BY"):
                    partition = parse_partition(cursor)
                if cursor.sees("ORDER"):
                    message = f"{function} takes rows in the order in which they come."
                    raise cursor.unsupported_error(message, remedy="Leave ORDER BY out.")
            case "OP":
                cursor.need("DESCRIPTOR")
                op = name_list(cursor)
            case "OP_MAPPING":
                mapping = _mapping(cursor)
            case "UID":
                cursor.string()
            case _:
                handling = _option(cursor, function, name)
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    span = cursor.since(start)
    if table is None or len(op) > 1:
        message = f"{function} needs a table, and takes one column as DESCRIPTOR."
        remedy = f"Write {function}(input => TABLE t, op => DESCRIPTOR(op))."
        raise cursor.script.error("SQL_SYNTAX", message, span, remedy=remedy)
    skips = handling == "SKIP"
    return ChangelogSource(function, table, partition, op[0] if op else None, mapping, span, skips=skips)


def _argument_name(cursor: Cursor, function: str) -> str | None:
    token, arrow = cursor.peek(), cursor.peek(1)
    if token is None or arrow is None or not arrow.is_symbol("=>"):
        return None
    cursor.advance()
    cursor.advance()
    known = (*_ORDER, *_OPTIONS[function], "UID")
    if token.text.upper() not in known:
        message, listed = f"{function} has no argument {token.text}.", ", ".join(known).lower()
        raise cursor.script.error("SQL_SYNTAX", message, token.span, remedy=f"It has {listed}.")
    return token.text.upper()


def _next(cursor: Cursor, function: str, seen: set[str]) -> str:
    """The name of an argument that is given by its place."""
    if len(seen) >= len(_ORDER):
        raise cursor.script.error("SQL_SYNTAX", f"{function} has no more arguments without names.", cursor.here())
    return _ORDER[len(seen)]


def _mapping(cursor: Cursor) -> tuple[tuple[str, str, Span], ...]:
    """MAP['a', 'b', ...]: pairs of texts, each with where it stands."""
    cursor.need("MAP")
    cursor.need_symbol("[")
    pairs = []
    while True:
        key = cursor.string()
        cursor.need_symbol(",")
        pairs.append((key.text, cursor.string().text, cursor.since(key.span)))
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol("]")
    return tuple(pairs)


def _option(cursor: Cursor, function: str, name: str) -> str:
    """The value of a further argument."""
    values = _OPTIONS[function][name]
    token = cursor.advance()
    if token.text.upper() not in values:
        message = f"{name.lower()} of {function} cannot be {token.text}."
        remedy = f"It is {' or '.join(values)}."
        if name.endswith("_HANDLING"):
            remedy = "It is 'FAIL': a row with another code ends the job; or 'SKIP': such rows are left out."
        raise cursor.unsupported_error(message, token.span, remedy=remedy)
    return token.text.upper()
