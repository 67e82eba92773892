"""OVERLAPS: whether two periods have a moment in common."""

from __future__ import annotations

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.syntax.expressions import CaseTerm, IntervalTerm, Operation, RowTerm, Term
from millstream.streams.sql.syntax.script import Span

__all__ = ["parse_overlaps"]


def parse_overlaps(cursor: Cursor, left: RowTerm, start: Span) -> Term:
    """Two periods, each a start and an end or a length, that have a moment in common."""
    right = cursor.sum()
    if not isinstance(right, RowTerm) or len(right.values) != 2:
        raise cursor.script.error("SQL_SYNTAX", "OVERLAPS stands between two periods: (start, end).", right.span)
    span = cursor.since(start)
    first, second = (_bounds(period) for period in (left, right))
    halves = (Operation("<=", (one, other), span) for one, other in ((first[0], second[1]), (second[0], first[1])))
    return Operation("AND", tuple(halves), span)


def _bounds(period: RowTerm) -> tuple[Term, Term]:
    """The earlier and the later bound of a period."""
    start, end = period.values
    if isinstance(end, IntervalTerm):
        end = Operation("+", (start, end), end.span)
    is_turned = Operation("<", (end, start), period.span)
    bounds = ((end, start), (start, end))
    earlier, later = (CaseTerm(None, ((is_turned, turned),), plain, period.span) for turned, plain in bounds)
    return earlier, later
