"""Queries: SELECT with its clauses, VALUES, set operations, WITH, ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.from_parser import bare_alias, parse_source
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.parser.names import parse_hints, parse_table
from millstream.streams.sql.parser.over_parser import parse_over_body, parse_sort_items
from millstream.streams.sql.syntax.expressions import CallTerm, OverWindow, RowTerm, StarTerm, Term
from millstream.streams.sql.syntax.queries import (
    CommonTable,
    GroupingSets,
    OrderedQuery,
    QueryTree,
    Select,
    SelectItem,
    SetQuery,
    ValuesQuery,
    WithQuery,
)
from millstream.streams.sql.syntax.script import Span

__all__ = ["parse_select"]

_MAX_CUBE = 8
"""Columns of one CUBE; each doubles the rows."""


def parse_select(cursor: Cursor) -> QueryTree:
    """The query that comes next, with all that belongs to it."""
    start = cursor.here()
    tables = _common_tables(cursor) if cursor.take("WITH") else ()
    if tables and cursor.sees("INSERT"):
        raise cursor.unsupported_error(
            "WITH stands behind INSERT INTO.", remedy="Write INSERT INTO t WITH ... SELECT ...."
        )
    query = _parse_unions(cursor)
    order = parse_sort_items(cursor) if cursor.take("ORDER", "BY") else ()
    limit, offset = _limits(cursor)
    if order or limit is not None or offset:
        query = OrderedQuery(query, order, limit, offset, cursor.since(start))
    return WithQuery(tables, query, cursor.since(start)) if tables else query


def _common_tables(cursor: Cursor) -> tuple[CommonTable, ...]:
    if cursor.sees("RECURSIVE"):
        raise cursor.unsupported_error("WITH RECURSIVE is not supported.")
    tables = []
    while True:
        token = cursor.name("a name")
        columns = _names(cursor) if cursor.sees_symbol("(") else ()
        cursor.need("AS")
        cursor.need_symbol("(")
        query = parse_select(cursor)
        cursor.need_symbol(")")
        tables.append(CommonTable(token.text, columns, query, token.span))
        if not cursor.take_symbol(","):
            return tuple(tables)


def _names(cursor: Cursor) -> tuple[str, ...]:
    cursor.need_symbol("(")
    names = [cursor.name("a column's name").text]
    while cursor.take_symbol(","):
        names.append(cursor.name("a column's name").text)
    cursor.need_symbol(")")
    return tuple(names)


def _limits(cursor: Cursor) -> tuple[int | None, int]:
    """LIMIT n, LIMIT ALL, OFFSET n ROWS, FETCH FIRST n ROWS ONLY, in any order that Flink takes."""
    limit: int | None = None
    offset = 0
    if cursor.take("LIMIT") and not cursor.take("ALL"):
        limit = _count(cursor)
        if cursor.sees_symbol(","):
            raise cursor.unsupported_error(
                "LIMIT start, count is not supported.", remedy="Write LIMIT count OFFSET start."
            )
    if cursor.take("OFFSET"):
        offset = _count(cursor)
        if not cursor.take("ROWS"):
            cursor.take("ROW")
    if cursor.take("FETCH"):
        if not cursor.take("FIRST"):
            cursor.need("NEXT")
        limit = 1 if cursor.sees("ROW") or cursor.sees("ROWS") else _count(cursor)
        if not cursor.take("ROWS"):
            cursor.need("ROW")
        cursor.need("ONLY")
    return limit, offset


def _count(cursor: Cursor) -> int:
    token = cursor.peek()
    if token is None or token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
        raise cursor.expected_error("a whole number")
    return int(cursor.advance().text)


def _parse_unions(cursor: Cursor) -> QueryTree:
    start = cursor.here()
    left = _parse_intersections(cursor)
    while True:
        kind = next((word for word in ("UNION", "EXCEPT", "MINUS") if cursor.take(word)), None)
        if kind is None:
            return left
        keep_all = _keeps_all(cursor)
        right = _parse_intersections(cursor)
        left = SetQuery("EXCEPT" if kind == "MINUS" else kind, keep_all, left, right, cursor.since(start))


def _parse_intersections(cursor: Cursor) -> QueryTree:
    start = cursor.here()
    left = _one(cursor)
    while cursor.take("INTERSECT"):
        keep_all = _keeps_all(cursor)
        right = _one(cursor)
        left = SetQuery("INTERSECT", keep_all, left, right, cursor.since(start))
    return left


def _keeps_all(cursor: Cursor) -> bool:
    return cursor.take("ALL") or (cursor.take("DISTINCT") and False)


def _one(cursor: Cursor) -> QueryTree:
    start = cursor.here()
    if cursor.take_symbol("("):
        query = parse_select(cursor)
        cursor.need_symbol(")")
        return query
    if cursor.take("VALUES"):
        rows = [_row(cursor)]
        while cursor.take_symbol(","):
            rows.append(_row(cursor))
        return ValuesQuery(tuple(rows), cursor.since(start))
    if cursor.take("TABLE"):
        table = parse_table(cursor)
        return Select((SelectItem(StarTerm(table.span), None),), table, None, (), None, cursor.since(start))
    return _select(cursor, start)


def _row(cursor: Cursor) -> tuple[Term, ...]:
    term = cursor.term()
    if isinstance(term, CallTerm) and term.name == "ROW":
        return term.arguments
    return term.values if isinstance(term, RowTerm) else (term,)


def _select(cursor: Cursor, start: Span) -> Select:
    cursor.need("SELECT")
    hints = parse_hints(cursor, of_table=False)
    distinct = cursor.take("DISTINCT")
    cursor.take("ALL")
    items = [_item(cursor)]
    while cursor.take_symbol(","):
        items.append(_item(cursor))
    source = parse_source(cursor) if cursor.take("FROM") else None
    where = cursor.term() if cursor.take("WHERE") else None
    groups = _groups(cursor) if cursor.take("GROUP", "BY") else ()
    having = cursor.term() if cursor.take("HAVING") else None
    windows = _windows(cursor) if cursor.take("WINDOW") else ()
    qualify = cursor.term() if cursor.take("QUALIFY") else None
    span = cursor.since(start)
    return Select(tuple(items), source, where, groups, having, span, distinct, qualify, windows, hints)


def _item(cursor: Cursor) -> SelectItem:
    if cursor.sees_symbol("*"):
        return SelectItem(StarTerm(cursor.advance().span), None)
    value = cursor.term()
    if cursor.take("AS"):
        return SelectItem(value, cursor.clear_name("an alias").text)
    return SelectItem(value, bare_alias(cursor))


def _windows(cursor: Cursor) -> tuple[tuple[str, OverWindow], ...]:
    windows = []
    while True:
        token = cursor.name("a window's name")
        cursor.need("AS")
        windows.append((token.text, parse_over_body(cursor)))
        if not cursor.take_symbol(","):
            return tuple(windows)


def _groups(cursor: Cursor) -> tuple[Term | GroupingSets, ...]:
    groups = [_group(cursor)]
    while cursor.take_symbol(","):
        groups.append(_group(cursor))
    return tuple(groups)


def _group(cursor: Cursor) -> Term | GroupingSets:
    start = cursor.here()
    sets = _sets(cursor)
    if sets is not None:
        return GroupingSets(tuple(sets), cursor.since(start))
    following = cursor.peek(1)
    if following is not None and following.is_symbol(")") and cursor.take_symbol("("):
        cursor.need_symbol(")")
        return GroupingSets(((),), cursor.since(start))
    return cursor.term()


def _sets(cursor: Cursor) -> list[tuple[Term, ...]] | None:
    """The sets of GROUPING SETS, which may hold further ones, of CUBE or of ROLLUP; None for anything else."""
    start = cursor.here()
    if cursor.take("GROUPING", "SETS"):
        cursor.need_symbol("(")
        sets = [*_inner_sets(cursor)]
        while cursor.take_symbol(","):
            sets += _inner_sets(cursor)
        cursor.need_symbol(")")
        return sets
    following = cursor.peek(1)
    if following is None or not following.is_symbol("("):
        return None
    if cursor.take("CUBE"):
        parts = _parts(cursor)
        if len(parts) > _MAX_CUBE:
            raise cursor.unsupported_error(f"A CUBE takes at most {_MAX_CUBE} columns.", cursor.since(start))
        last = len(parts) - 1
        masks = range(2 ** len(parts) - 1, -1, -1)
        return [_together(part for bit, part in enumerate(parts) if mask >> (last - bit) & 1) for mask in masks]
    if cursor.take("ROLLUP"):
        parts = _parts(cursor)
        return [_together(parts[:length]) for length in range(len(parts), -1, -1)]
    return None


def _inner_sets(cursor: Cursor) -> list[tuple[Term, ...]]:
    sets = _sets(cursor)
    return [_parse_set(cursor)] if sets is None else sets


def _parts(cursor: Cursor) -> list[tuple[Term, ...]]:
    """What CUBE and ROLLUP take or leave: columns, or several together in brackets."""
    return [term.values if isinstance(term, RowTerm) else (term,) for term in _parse_set(cursor)]


def _together(parts: Iterable[tuple[Term, ...]]) -> tuple[Term, ...]:
    return tuple(term for part in parts for term in part)


def _parse_set(cursor: Cursor) -> tuple[Term, ...]:
    """One set of columns: (a, b), () or a."""
    if cursor.take_symbol("("):
        terms: list[Term] = []
        while not cursor.take_symbol(")"):
            terms.append(cursor.term())
            if not cursor.take_symbol(",") and not cursor.sees_symbol(")"):
                raise cursor.expected_error(", or )")
        return tuple(terms)
    return (cursor.term(),)
