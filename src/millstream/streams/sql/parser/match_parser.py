"""MATCH_RECOGNIZE (...): partition, order, measures, pattern and definitions."""

from __future__ import annotations

from millstream.streams.plan.patterns import Skip, SkipMode
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.interval_parser import parse_interval
from millstream.streams.sql.parser.over_parser import parse_sort_items
from millstream.streams.sql.parser.pattern_parser import parse_pattern
from millstream.streams.sql.syntax.expressions import IntervalTerm, NameTerm, SortItem
from millstream.streams.sql.syntax.queries import Alias, Definition, MatchSource, Measure, SubquerySource, TableSource

__all__ = ["parse_match"]


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
        raise cursor.unsupported("SUBSET is not supported.", remedy="Name each variable in the expressions.")
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


def _measures(cursor: Cursor) -> tuple[Measure, ...]:
    """The measures. A match gives one row, its last, so FINAL and RUNNING are the same."""
    measures: list[Measure] = []
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
        measures.append(Measure(value, name, cursor.since(start)))
        if not cursor.take_symbol(","):
            return tuple(measures)


def _rows_per_match(cursor: Cursor) -> None:
    if cursor.sees("ALL", "ROWS"):
        message = "ALL ROWS PER MATCH is not supported, as in Flink."
        raise cursor.unsupported(message, remedy="Use ONE ROW PER MATCH, and MEASURES for what it shows.")
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
