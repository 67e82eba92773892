"""SELECT: its clauses, tables and the window TVF."""

from __future__ import annotations

from millstream.streams.sql.cursor import RESERVED, Cursor
from millstream.streams.sql.interval_parser import parse_interval
from millstream.streams.sql.lexer import TokenKind
from millstream.streams.sql.names import parse_path, path_text
from millstream.streams.sql.script import Span
from millstream.streams.sql.syntax import (
    IntervalTerm,
    NameTerm,
    Select,
    SelectItem,
    Source,
    StarTerm,
    SubquerySource,
    TableSource,
    Term,
    TumbleSource,
)
from millstream.streams.sql.term_parser import parse_term

__all__ = ["parse_select"]

_CLAUSES = {
    "ORDER": "ORDER BY", "LIMIT": "LIMIT", "OFFSET": "OFFSET", "FETCH": "FETCH", "UNION": "UNION",
    "INTERSECT": "INTERSECT", "EXCEPT": "EXCEPT", "MINUS": "MINUS", "WINDOW": "WINDOW", "QUALIFY": "QUALIFY",
    "EMIT": "EMIT",
}  # fmt: skip
_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_OTHER_TVFS = ("HOP", "CUMULATE", "SESSION")
_SUPPORTED = "Supported: SELECT, FROM one table, view, sub-query or TUMBLE, WHERE, GROUP BY a window, HAVING."


def parse_select(cursor: Cursor) -> Select:
    """The query that comes next."""
    start = cursor.here()
    if cursor.sees("WITH"):
        raise cursor.unsupported("WITH is not supported.", remedy="Use CREATE VIEW.")
    if cursor.sees("VALUES"):
        raise cursor.unsupported("VALUES is not supported.", remedy="Use millstream produce to send rows.")
    cursor.need("SELECT")
    if cursor.sees("DISTINCT"):
        raise cursor.unsupported("SELECT DISTINCT is not supported.", remedy=_SUPPORTED)
    cursor.take("ALL")
    items = [_item(cursor)]
    while cursor.take_symbol(","):
        items.append(_item(cursor))
    source = _source(cursor) if cursor.take("FROM") else None
    where = parse_term(cursor) if cursor.take("WHERE") else None
    groups = _groups(cursor) if cursor.take("GROUP", "BY") else ()
    having = parse_term(cursor) if cursor.take("HAVING") else None
    token = cursor.peek()
    if token is not None and token.kind is TokenKind.WORD and token.text.upper() in {*_CLAUSES} - {"EMIT"}:
        raise cursor.unsupported(f"{_CLAUSES[token.text.upper()]} is not supported.", remedy=_SUPPORTED)
    return Select(tuple(items), source, where, groups, having, cursor.since(start))


def _item(cursor: Cursor) -> SelectItem:
    if cursor.sees_symbol("*"):
        return SelectItem(StarTerm(cursor.advance().span), None)
    value = parse_term(cursor)
    if cursor.take("AS"):
        return SelectItem(value, cursor.name("an alias").text)
    return SelectItem(value, _bare_alias(cursor))


def _bare_alias(cursor: Cursor) -> str | None:
    """An alias without AS, if a name follows that begins no clause."""
    token = cursor.peek()
    if token is None or token.kind not in (TokenKind.WORD, TokenKind.NAME):
        return None
    if token.kind is TokenKind.WORD and token.text.upper() in {*_CLAUSES, *RESERVED}:
        return None
    return cursor.advance().text


def _groups(cursor: Cursor) -> tuple[Term, ...]:
    for word in ("GROUPING", "CUBE", "ROLLUP"):
        if cursor.sees(word):
            raise cursor.unsupported(f"GROUP BY {word} is not supported.", remedy=_SUPPORTED)
    groups = [parse_term(cursor)]
    while cursor.take_symbol(","):
        groups.append(parse_term(cursor))
    return tuple(groups)


def _source(cursor: Cursor) -> Source:
    source = _one_source(cursor)
    token = cursor.peek()
    if cursor.sees_symbol(","):
        raise cursor.unsupported("More than one table in FROM is not supported.", remedy=_SUPPORTED)
    if token is not None and token.kind is TokenKind.WORD:
        word = token.text.upper()
        if word in _JOINS:
            raise cursor.unsupported("JOIN is not supported.", remedy=_SUPPORTED)
        if word in ("FOR", "MATCH_RECOGNIZE", "TABLESAMPLE", "LATERAL"):
            raise cursor.unsupported(f"{word} is not supported.", remedy=_SUPPORTED)
    return source


def _one_source(cursor: Cursor) -> Source:
    start = cursor.here()
    if cursor.take_symbol("("):
        if not cursor.sees("SELECT"):
            raise cursor.expected("SELECT")
        query = parse_select(cursor)
        cursor.need_symbol(")")
        span = cursor.since(start)
        return SubquerySource(query, span, _alias(cursor))
    if cursor.take("TABLE"):
        cursor.need_symbol("(")
        tumble = _tumble(cursor, start)
        cursor.need_symbol(")")
        return TumbleSource(
            tumble.table, tumble.time_column, tumble.size, tumble.offset, cursor.since(start), _alias(cursor)
        )
    if cursor.sees("LATERAL") or cursor.sees("UNNEST"):
        raise cursor.unsupported("LATERAL and UNNEST are not supported.", remedy=_SUPPORTED)
    following = cursor.peek(1)
    if following is not None and following.is_symbol("(") and not cursor.sees_symbol("("):
        tumble = _tumble(cursor, start)
        return TumbleSource(tumble.table, tumble.time_column, tumble.size, tumble.offset, tumble.span, _alias(cursor))
    table = _table(cursor)
    return TableSource(table.name, table.span, _alias(cursor))


def _alias(cursor: Cursor) -> str | None:
    alias = cursor.name("an alias").text if cursor.take("AS") else _bare_alias(cursor)
    if alias is not None and cursor.sees_symbol("("):
        raise cursor.unsupported("New names for the columns of a table are not supported.", remedy="Use a sub-query.")
    return alias


def _table(cursor: Cursor) -> TableSource:
    path = parse_path(cursor, "a table's name")
    return TableSource(path_text(path.parts), path.span)


def _tumble(cursor: Cursor, start: Span) -> TumbleSource:
    token = cursor.name("TUMBLE")
    if not token.is_word("TUMBLE"):
        known = token.text.upper() in _OTHER_TVFS
        message = (
            f"The window {token.text.upper()} is not supported." if known else f"{token.text} is no table function."
        )
        raise cursor.unsupported(message, token.span, remedy="Use TUMBLE.")
    cursor.need_symbol("(")
    named: dict[str, object] = {}
    order = ("DATA", "TIMECOL", "SIZE", "OFFSET")
    for place in range(len(order)):
        key = _argument_name(cursor) or order[place]
        if key not in order or key in named:
            raise cursor.script.error("SQL_SYNTAX", f"TUMBLE takes {', '.join(order)}, each once.", cursor.here())
        named[key] = _tumble_argument(cursor, key)
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    table, time, size, offset = (named.get(key) for key in order)
    span = cursor.since(start)
    if not isinstance(table, TableSource) or not isinstance(time, NameTerm) or not isinstance(size, IntervalTerm):
        message = "TUMBLE needs a table, a time column and a size."
        remedy = "Write TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)."
        raise cursor.script.error("SQL_SYNTAX", message, span, remedy=remedy)
    return TumbleSource(table, time, size, offset if isinstance(offset, IntervalTerm) else None, span)


def _argument_name(cursor: Cursor) -> str | None:
    token, arrow = cursor.peek(), cursor.peek(1)
    if token is None or arrow is None or not arrow.is_symbol("=>"):
        return None
    cursor.advance()
    cursor.advance()
    return token.text.upper()


def _tumble_argument(cursor: Cursor, key: str) -> TableSource | NameTerm | IntervalTerm:
    if key == "DATA":
        if cursor.sees_symbol("("):
            raise cursor.unsupported("A sub-query inside of TUMBLE is not supported.", remedy="Use CREATE VIEW.")
        cursor.need("TABLE")
        table = _table(cursor)
        if cursor.sees("PARTITION"):
            raise cursor.unsupported("PARTITION BY inside of TUMBLE is not supported.")
        return table
    if key == "TIMECOL":
        cursor.need("DESCRIPTOR")
        cursor.need_symbol("(")
        token = cursor.name("a column's name")
        cursor.need_symbol(")")
        return NameTerm((token.text,), token.span)
    return parse_interval(cursor)
