"""Calls with words between their arguments: TRIM(BOTH x FROM y), EXTRACT(DAY FROM x), POSITION(x IN y) and so on."""

from __future__ import annotations

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.syntax.expressions import CallTerm, LiteralTerm, Term

__all__ = ["SPOKEN_CALLS", "parse_spoken_call"]

_UNIT_FIRST = ("TIMESTAMPADD", "TIMESTAMPDIFF")

SPOKEN_CALLS = ("TRIM", "POSITION", "EXTRACT", "FLOOR", "CEIL", "CEILING", "SUBSTRING", "LEFT", "RIGHT", *_UNIT_FIRST)
"""The functions that may be called so."""


def parse_spoken_call(cursor: Cursor, name: str) -> Term:
    """Calls with words between their arguments: TRIM(BOTH x FROM y), POSITION(x IN y), EXTRACT(DAY FROM x) ..."""
    token = cursor.advance()
    cursor.need_symbol("(")
    arguments: tuple[Term, ...]
    if name == "TRIM":
        arguments = _trim_arguments(cursor)
    elif name == "EXTRACT" or name in _UNIT_FIRST:
        unit = cursor.name("a unit of time")
        if name == "EXTRACT":
            cursor.need("FROM")
        else:
            cursor.need_symbol(",")
        arguments = (LiteralTerm(unit.text.upper(), unit.span), *cursor.arguments())
    else:
        first = cursor.sum()
        if name == "POSITION":
            cursor.need("IN")
            arguments = (first, cursor.sum())
        elif name == "SUBSTRING" and cursor.take("FROM"):
            place = cursor.sum()
            arguments = (first, place, cursor.sum()) if cursor.take("FOR") else (first, place)
        elif name in ("FLOOR", "CEIL") and cursor.take("TO"):
            unit = cursor.name("a unit of time")
            arguments = (first, LiteralTerm(unit.text.upper(), unit.span))
        else:
            arguments = (first, *(cursor.arguments() if cursor.take_symbol(",") else ()))
    cursor.need_symbol(")")
    return CallTerm(name, arguments, cursor.since(token.span), token.span)


def _trim_arguments(cursor: Cursor) -> tuple[Term, ...]:
    side = next((word for word in ("BOTH", "LEADING", "TRAILING") if cursor.sees(word)), None)
    start = cursor.here()
    if side is not None:
        cursor.advance()
    blank = LiteralTerm(" ", start)
    if side is not None and cursor.take("FROM"):
        return (cursor.term(), blank, LiteralTerm(side, start))
    first = cursor.term()
    if cursor.take("FROM"):
        return (cursor.term(), first, LiteralTerm(side or "BOTH", start))
    if side is not None:
        raise cursor.expected("FROM")
    return (first,)
