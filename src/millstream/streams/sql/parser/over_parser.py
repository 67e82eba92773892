"""ORDER BY items, and the windows of OVER."""

from __future__ import annotations

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.syntax.expressions import FrameBound, OverWindow, SortItem, Term

__all__ = ["parse_over", "parse_over_body", "parse_sort_items"]


def parse_sort_items(cursor: Cursor) -> tuple[SortItem, ...]:
    """What stands behind ORDER BY."""
    items = [_sort_item(cursor)]
    while cursor.take_symbol(","):
        items.append(_sort_item(cursor))
    return tuple(items)


def _sort_item(cursor: Cursor) -> SortItem:
    start = cursor.here()
    value = cursor.term()
    ascending = not cursor.take("DESC")
    if ascending:
        cursor.take("ASC")
    nulls_first: bool | None = None
    if cursor.take("NULLS"):
        nulls_first = cursor.take("FIRST")
        if not nulls_first:
            cursor.need("LAST")
    return SortItem(value, ascending, nulls_first, cursor.since(start))


def parse_over(cursor: Cursor) -> OverWindow:
    """What stands behind OVER: a name of the WINDOW clause or a window in brackets."""
    if cursor.sees_symbol("("):
        return parse_over_body(cursor)
    token = cursor.name("a window's name or (")
    return OverWindow(token.text, (), (), False, None, token.span)


def parse_over_body(cursor: Cursor) -> OverWindow:
    """([base] [PARTITION BY ...] [ORDER BY ...] [ROWS or RANGE ...])."""
    start = cursor.need_symbol("(").span
    base = None
    if not cursor.sees_symbol(")") and not any(cursor.sees(word) for word in ("PARTITION", "ORDER", "ROWS", "RANGE")):
        base = cursor.name("PARTITION BY, ORDER BY or a window's name").text
    partition: tuple[Term, ...] = ()
    if cursor.take("PARTITION", "BY"):
        terms = [cursor.term()]
        while cursor.take_symbol(","):
            terms.append(cursor.term())
        partition = tuple(terms)
    order = parse_sort_items(cursor) if cursor.take("ORDER", "BY") else ()
    rows = cursor.sees("ROWS")
    frame = _frame(cursor) if cursor.take("ROWS") or cursor.take("RANGE") else None
    cursor.need_symbol(")")
    return OverWindow(base, partition, order, rows, frame, cursor.since(start))


def _frame(cursor: Cursor) -> tuple[FrameBound, FrameBound]:
    start = cursor.here()
    if cursor.take("BETWEEN"):
        first = _parse_bound(cursor)
        cursor.need("AND")
        return first, _parse_bound(cursor)
    first = _parse_bound(cursor)
    return first, FrameBound(None, False, True, cursor.since(start))


def _parse_bound(cursor: Cursor) -> FrameBound:
    start = cursor.here()
    if cursor.take("CURRENT"):
        cursor.need("ROW")
        return FrameBound(None, False, True, cursor.since(start))
    amount = None if cursor.take("UNBOUNDED") else cursor.term()
    following = cursor.take("FOLLOWING")
    if not following:
        cursor.need("PRECEDING")
    return FrameBound(amount, following, False, cursor.since(start))
