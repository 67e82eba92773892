"""PATTERN (...) of MATCH_RECOGNIZE: variables with quantifiers, groups and alternatives."""

from __future__ import annotations

from millstream.streams.plan.patterns import Alternation, Pattern, Quantified, Sequence, Variable
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.syntax.script import Span

__all__ = ["MAX_REPEATS", "parse_pattern"]

MAX_REPEATS = 10_000
"""The greatest number in {n} and its kin: each repeat of a match is kept in state."""

_UNSUPPORTED = {
    "{": ("Exclusions {- ... -} are not supported: a match gives one row, which has none to leave out.", "Drop them."),
    "^": ("Anchors are not supported: a stream has no first row.", "Leave the ^ out."),
    "$": ("Anchors are not supported: a stream has no last row.", "Leave the $ out."),
}  # fmt: skip


def parse_pattern(cursor: Cursor) -> tuple[Pattern, dict[str, Span]]:
    """The pattern in brackets that comes next, and where each of its variables stands first."""
    variables: dict[str, Span] = {}
    cursor.need_symbol("(")
    pattern = _alternation(cursor, variables)
    cursor.need_symbol(")")
    return pattern, variables


def _alternation(cursor: Cursor, variables: dict[str, Span]) -> Pattern:
    parts = [_sequence(cursor, variables)]
    while cursor.take_symbol("|"):
        parts.append(_sequence(cursor, variables))
    return parts[0] if len(parts) == 1 else Alternation(tuple(parts))


def _sequence(cursor: Cursor, variables: dict[str, Span]) -> Pattern:
    parts = [_quantified(cursor, variables)]
    while not cursor.at_end and not cursor.sees_symbol(")") and not cursor.sees_symbol("|"):
        parts.append(_quantified(cursor, variables))
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _quantified(cursor: Cursor, variables: dict[str, Span]) -> Pattern:
    part = _part(cursor, variables)
    bounds = _bounds(cursor)
    if bounds is None:
        return part
    return Quantified(part, bounds[0], bounds[1], greedy=not cursor.take_symbol("?"))


def _part(cursor: Cursor, variables: dict[str, Span]) -> Pattern:
    if cursor.take_symbol("("):
        inside = _alternation(cursor, variables)
        cursor.need_symbol(")")
        return inside
    for symbol, (message, remedy) in _UNSUPPORTED.items():
        if cursor.sees_symbol(symbol):
            raise cursor.unsupported(message, remedy=remedy)
    following = cursor.peek(1)
    if cursor.sees("PERMUTE") and following is not None and following.is_symbol("("):
        message = "PERMUTE is not supported."
        raise cursor.unsupported(message, remedy="Write the orders as alternatives: (A B | B A).")
    token = cursor.name("a variable of the pattern")
    variables.setdefault(token.text, token.span)
    return Variable(token.text)


def _bounds(cursor: Cursor) -> tuple[int, int | None] | None:
    """Least and most repeats of a quantifier; None if none comes."""
    for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
        if cursor.take_symbol(symbol):
            return bounds
    following = cursor.peek(1)
    if not cursor.sees_symbol("{") or (following is not None and following.is_symbol("-")):
        return None
    start = cursor.advance().span
    least = _number(cursor)
    most = least
    if cursor.take_symbol(","):
        most = _number(cursor)
    if cursor.sees_symbol("}") and (least, most) != (None, None):
        cursor.advance()
    else:
        raise cursor.expected("a number of repeats, as in {2}, {2,}, {,3} or {2,3}")
    if most == 0 or (most is not None and (least or 0) > most):
        message = "A quantifier has at least 1 repeat at most, and no more at least than at most."
        raise cursor.script.error("SQL_SYNTAX", message, cursor.since(start))
    return least or 0, most


def _number(cursor: Cursor) -> int | None:
    token = cursor.peek()
    if token is None or token.kind is not TokenKind.NUMBER:
        return None
    if not token.text.isdecimal() or int(token.text) > MAX_REPEATS:
        message = f"A number of repeats is whole and at most {MAX_REPEATS}."
        raise cursor.script.error("SQL_SYNTAX", message, token.span)
    return int(cursor.advance().text)
