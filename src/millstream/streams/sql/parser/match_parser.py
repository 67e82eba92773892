"""MATCH_RECOGNIZE (...): partition, order, measures, pattern and definitions.

PATTERN (...) of MATCH_RECOGNIZE: variables with quantifiers, groups and alternatives.
"""

from __future__ import annotations

from millstream.streams.plan.patterns import Alternation, Pattern, Quantified, Sequence, Skip, SkipMode, Variable
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.parser.over_parser import parse_sort_items
from millstream.streams.sql.parser.type_parser import parse_interval
from millstream.streams.sql.syntax.expressions import IntervalTerm, NameTerm, SortItem
from millstream.streams.sql.syntax.queries import (
    Alias,
    Definition,
    MatchSource,
    MeasureItem,
    SubquerySource,
    TableSource,
)
from millstream.streams.sql.syntax.script import Span

__all__ = ["MAX_REPEATS", "parse_match", "parse_pattern"]

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
    parts = [_parse_quantified(cursor, variables)]
    while not cursor.at_end and not cursor.sees_symbol(")") and not cursor.sees_symbol("|"):
        parts.append(_parse_quantified(cursor, variables))
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _parse_quantified(cursor: Cursor, variables: dict[str, Span]) -> Pattern:
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
            raise cursor.unsupported_error(message, remedy=remedy)
    following = cursor.peek(1)
    if cursor.sees("PERMUTE") and following is not None and following.is_symbol("("):
        message = "PERMUTE is not supported."
        raise cursor.unsupported_error(message, remedy="Write the orders as alternatives: (A B | B A).")
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
        raise cursor.expected_error("a number of repeats, as in {2}, {2,}, {,3} or {2,3}")
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


def parse_match(cursor: Cursor, table: TableSource | SubquerySource) -> MatchSource:
    """What comes behind the table, from MATCH_RECOGNIZE to its closing bracket; the alias behind it is not read."""
    cursor.need("MATCH_RECOGNIZE")
    cursor.need_symbol("(")
    partition = _partition(cursor) if cursor.take("PARTITION", "BY") else ()
    order: tuple[SortItem, ...] = parse_sort_items(cursor) if cursor.take("ORDER", "BY") else ()
    measures = _measures(cursor) if cursor.take("MEASURES") else ()
    _rows_per_match(cursor)
    start = cursor.here()
    skip = _skip(cursor) if cursor.take("AFTER", "MATCH") else Skip(SkipMode.TO_NEXT_ROW)
    skip_span = cursor.since(start)
    cursor.need("PATTERN")
    start = cursor.here()
    pattern, variables = parse_pattern(cursor)
    pattern_span = cursor.since(start)
    within = _within(cursor) if cursor.take("WITHIN") else None
    if cursor.sees("SUBSET"):
        raise cursor.unsupported_error("SUBSET is not supported.", remedy="Name each variable in the expressions.")
    cursor.need("DEFINE")
    definitions = _definitions(cursor)
    cursor.need_symbol(")")
    return MatchSource(
        table, partition, order, measures, skip, skip_span, pattern, pattern_span, variables, within, definitions,
        cursor.since(table.span), Alias(),
    )  # fmt: skip


def _partition(cursor: Cursor) -> tuple[NameTerm, ...]:
    names = []
    while True:
        token = cursor.name("a column's name")
        names.append(NameTerm((token.text,), token.span))
        if not cursor.take_symbol(","):
            return tuple(names)


def _measures(cursor: Cursor) -> tuple[MeasureItem, ...]:
    """The measures. A match gives one row, its last, so FINAL and RUNNING are the same."""
    measures: list[MeasureItem] = []
    while True:
        following = cursor.peek(1)
        calls = following is not None and (following.is_symbol("(") or following.is_symbol("."))
        if not calls and not cursor.take("FINAL"):
            cursor.take("RUNNING")
        start = cursor.here()
        value = cursor.term()
        cursor.need("AS")
        name = cursor.name("the measure's name").text
        if any(name == known.name for known in measures):
            raise cursor.script.error("SQL_SYNTAX", f'Two measures are called "{name}".', cursor.since(start))
        measures.append(MeasureItem(value, name, cursor.since(start)))
        if not cursor.take_symbol(","):
            return tuple(measures)


def _rows_per_match(cursor: Cursor) -> None:
    if cursor.sees("ALL", "ROWS"):
        message = "ALL ROWS PER MATCH is not supported, as in Flink."
        raise cursor.unsupported_error(message, remedy="Use ONE ROW PER MATCH, and MEASURES for what it shows.")
    if cursor.take("ONE"):
        cursor.need("ROW", "PER", "MATCH")


def _skip(cursor: Cursor) -> Skip:
    """SKIP TO NEXT ROW, PAST LAST ROW, TO FIRST v, TO [LAST] v."""
    cursor.need("SKIP")
    if cursor.take("PAST"):
        cursor.need("LAST", "ROW")
        return Skip(SkipMode.PAST_LAST_ROW)
    cursor.need("TO")
    if cursor.take("NEXT", "ROW"):
        return Skip(SkipMode.TO_NEXT_ROW)
    first = cursor.take("FIRST")
    if not first:
        cursor.take("LAST")
    variable = cursor.name("a variable of the pattern").text
    return Skip(SkipMode.TO_FIRST if first else SkipMode.TO_LAST, variable)


def _within(cursor: Cursor) -> IntervalTerm:
    interval = parse_interval(cursor)
    if interval.duration is None or interval.duration.total_seconds() < 0.001:
        message = "WITHIN takes a time of 1 millisecond or more, without months."
        raise cursor.script.error("SQL_TYPE", message, interval.span)
    return interval


def _definitions(cursor: Cursor) -> tuple[Definition, ...]:
    definitions: list[Definition] = []
    while True:
        token = cursor.name("a variable of the pattern")
        if any(token.text == known.variable for known in definitions):
            raise cursor.script.error("SQL_SYNTAX", f"{token.text} is defined twice.", token.span)
        cursor.need("AS")
        definitions.append(Definition(token.text, cursor.term(), token.span))
        if not cursor.take_symbol(","):
            return tuple(definitions)
