"""Table functions of FROM: windows, TO_CHANGELOG and FROM_CHANGELOG, with positional or named arguments."""

from __future__ import annotations

from millstream.streams.errors import SqlError
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import Token
from millstream.streams.sql.parser.names import name_list, parse_table
from millstream.streams.sql.parser.type_parser import parse_interval
from millstream.streams.sql.syntax.expressions import IntervalTerm, NameTerm
from millstream.streams.sql.syntax.queries import ChangelogSource, SubquerySource, TableSource, WindowSource
from millstream.streams.sql.syntax.script import Span

__all__ = [
    "CHANGELOG_FUNCTIONS",
    "WINDOW_FUNCTIONS",
    "elsewhere",
    "parse_changelog",
    "parse_partition",
    "parse_rows",
    "parse_window",
    "sees_elsewhere",
]


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
        name = _changelog_argument(cursor, function) or _next(cursor, function, seen)
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


def _changelog_argument(cursor: Cursor, function: str) -> str | None:
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
