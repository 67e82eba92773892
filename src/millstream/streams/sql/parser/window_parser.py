"""The window functions of FROM: TUMBLE, HOP, CUMULATE and SESSION with their arguments by place or by name."""

from __future__ import annotations

from millstream.streams.errors import SqlError
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.hint_parser import parse_table
from millstream.streams.sql.parser.interval_parser import parse_interval
from millstream.streams.sql.parser.lexer import Token
from millstream.streams.sql.syntax.expressions import IntervalTerm, NameTerm
from millstream.streams.sql.syntax.queries import SubquerySource, TableSource, WindowSource
from millstream.streams.sql.syntax.script import Span

__all__ = ["WINDOW_FUNCTIONS", "elsewhere", "parse_partition", "parse_rows", "parse_window", "sees_elsewhere"]

WINDOW_FUNCTIONS = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}
"""Each window function with the intervals behind its table and its time column, in order; OFFSET may be missing."""

_ELSEWHERE = {
    "DEDUPLICATE_KEEP_FIRST": "Write QUALIFY ROW_NUMBER() OVER (PARTITION BY key ORDER BY time) = 1.",
    "VECTOR_SEARCH": "A user function can compare vectors; joins find rows by keys, ranges, networks and prefixes.",
    "ML_EVALUATE": "ML_PREDICT gives what a model says; aggregates over it and the labels compare both.",
}
"""Table functions of Flink's, and what does here what they do."""

_Argument = TableSource | SubquerySource | NameTerm | IntervalTerm


def parse_window(cursor: Cursor, start: Span) -> WindowSource:
    """The call of a window function, from its name to its closing bracket."""
    token = cursor.name("a window function")
    function = token.text.upper()
    if function not in WINDOW_FUNCTIONS:
        raise _no_window(cursor, token)
    cursor.need_symbol("(")
    order = ("DATA", "TIMECOL", *WINDOW_FUNCTIONS[function])
    named: dict[str, _Argument] = {}
    partition: tuple[NameTerm, ...] = ()
    for place in range(len(order)):
        key = _argument_name(cursor) or order[place]
        if key not in order or key in named:
            message = f"{function} takes {', '.join(order)}, each once."
            raise cursor.script.error("SQL_SYNTAX", message, cursor.here())
        named[key] = _argument(cursor, key)
        if key == "DATA" and cursor.take("PARTITION", "BY"):
            partition = parse_partition(cursor)
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    return _check_window(cursor, function, named, partition, cursor.since(start))


def _no_window(cursor: Cursor, token: Token) -> SqlError:
    if token.text.upper() in _ELSEWHERE:
        return elsewhere(cursor, token)
    remedy = f"Windows are {', '.join(WINDOW_FUNCTIONS)}; functions that take values stand in LATERAL TABLE(...)."
    return cursor.unsupported_error(f"{token.text} is no window function.", token.span, remedy=remedy)


def elsewhere(cursor: Cursor, token: Token) -> SqlError:
    """What is said of a table function that is none here; `sees_elsewhere` tells them."""
    remedy = _ELSEWHERE[token.text.upper()]
    return cursor.unsupported_error(f"The table function {token.text} is not supported.", token.span, remedy=remedy)


def sees_elsewhere(cursor: Cursor) -> bool:
    """Whether a table function of Flink's comes next that has another way here."""
    token, bracket = cursor.peek(), cursor.peek(1)
    return bracket is not None and bracket.is_symbol("(") and token is not None and token.text.upper() in _ELSEWHERE


def _check_window(
    cursor: Cursor, function: str, named: dict[str, _Argument], partition: tuple[NameTerm, ...], span: Span
) -> WindowSource:
    table, time = named.pop("DATA", None), named.pop("TIMECOL", None)
    sizes = tuple((key, size) for key, size in named.items() if isinstance(size, IntervalTerm))
    wanted = [key for key in WINDOW_FUNCTIONS[function] if key != "OFFSET"]
    if (
        not isinstance(table, TableSource | SubquerySource)
        or not isinstance(time, NameTerm)
        or any(key not in named for key in wanted)
    ):
        shown = ", ".join(f"{key} => INTERVAL '10' SECOND" for key in wanted)
        message = f"{function} needs a table, a time column and {' and '.join(key.lower() for key in wanted)}."
        remedy = f"Write {function}(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), {shown})."
        raise cursor.script.error("SQL_SYNTAX", message, span, remedy=remedy)
    if partition and function != "SESSION":
        message = f"PARTITION BY inside of {function} is not supported: only sessions depend on keys."
        raise cursor.unsupported_error(message, partition[0].span, remedy="Group by the keys.")
    return WindowSource(function, table, partition, time, sizes, span)


def _argument_name(cursor: Cursor) -> str | None:
    token, arrow = cursor.peek(), cursor.peek(1)
    if token is None or arrow is None or not arrow.is_symbol("=>"):
        return None
    cursor.advance()
    cursor.advance()
    return token.text.upper()


def _argument(cursor: Cursor, key: str) -> _Argument:
    if key == "DATA":
        return parse_rows(cursor)
    if key == "TIMECOL":
        cursor.need("DESCRIPTOR")
        cursor.need_symbol("(")
        token = cursor.name("a column's name")
        cursor.need_symbol(")")
        return NameTerm((token.text,), token.span)
    return parse_interval(cursor)


def parse_rows(cursor: Cursor) -> TableSource | SubquerySource:
    """The rows that a function of FROM takes: TABLE t, or a query in brackets."""
    cursor.take("TABLE")
    start = cursor.here()
    if not cursor.take_symbol("("):
        return parse_table(cursor)
    query = cursor.query()
    cursor.need_symbol(")")
    return SubquerySource(query, cursor.since(start))


def parse_partition(cursor: Cursor) -> tuple[NameTerm, ...]:
    """The columns of PARTITION BY behind a function's table, in brackets or not."""
    bracketed = cursor.take_symbol("(")
    names = []
    while True:
        token = cursor.name("a column's name")
        names.append(NameTerm((token.text,), token.span))
        if (not bracketed and _begins_argument(cursor)) or not cursor.take_symbol(","):
            break
    if bracketed:
        cursor.need_symbol(")")
    return tuple(names)


def _begins_argument(cursor: Cursor) -> bool:
    """Whether the comma that comes next ends the partition: DESCRIPTOR( or `name =>` stands behind it."""
    name, behind = cursor.peek(1), cursor.peek(2)
    return name is not None and behind is not None and (name.is_word("DESCRIPTOR") or behind.is_symbol("=>"))
