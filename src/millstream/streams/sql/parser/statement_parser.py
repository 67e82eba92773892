"""Parses a script to a list of statements, or one error with its position."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import OnConflict
from millstream.streams.plan.windows import Emit
from millstream.streams.sql.parser.alteration_parser import parse_alter
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.grammar import cursor_of
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.parser.names import name_list, parse_hints, parse_partition, parse_path
from millstream.streams.sql.parser.query_parser import parse_select
from millstream.streams.sql.parser.session_parser import (
    parse_create_catalog,
    parse_create_database,
    parse_create_function,
    parse_describe,
    parse_drop,
    parse_print,
    parse_setting,
    parse_show,
    parse_stop,
    parse_use,
)
from millstream.streams.sql.parser.table_parser import QUERY_WORDS, parse_create_table, parse_options
from millstream.streams.sql.parser.type_parser import parse_amount, parse_type
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.script import Script, Span, Variables, did_you_mean
from millstream.streams.sql.syntax.statements import (
    AnalyzeTable,
    CreateModel,
    CreateView,
    Explain,
    Insert,
    Query,
    Statement,
    StatementSet,
)
from millstream.streams.sql.syntax.tables import ColumnDefinition

__all__ = ["DEFAULT_LATENESS_MS", "FIRST_WORDS", "parse_create_model", "parse_emit", "parse_script", "too_deep"]


DEFAULT_LATENESS_MS = 3_600_000
"""How long after its end a window takes late rows where EMIT speaks of them and 'table.exec.emit.allow-lateness' is
not set; Blink's hour."""


def parse_emit(cursor: Cursor) -> Emit:
    """EMIT WITH DELAY '5' SECOND | WITHOUT DELAY [BEFORE | AFTER WATERMARK] [, ...]; without a side, both are meant."""
    cursor.need("EMIT")
    sides: dict[str, int] = {}
    while True:
        strategy = cursor.here()
        delay_ms = _delay(cursor)
        side = next((word for word in ("BEFORE", "AFTER") if cursor.take(word)), None)
        if side is not None:
            cursor.need("WATERMARK")
        for name in ("BEFORE", "AFTER") if side is None else (side,):
            if name in sides:
                message = f"EMIT says twice what comes {name} WATERMARK."
                raise cursor.script.error("SQL_SYNTAX", message, cursor.since(strategy))
            sides[name] = delay_ms
        if not cursor.take_symbol(","):
            break
    late_ms = sides.get("AFTER")
    return Emit(sides.get("BEFORE"), late_ms, 0 if late_ms is None else DEFAULT_LATENESS_MS)


def _delay(cursor: Cursor) -> int:
    if cursor.take("WITHOUT", "DELAY"):
        return 0
    if not cursor.take("WITH", "DELAY"):
        raise cursor.expected_error("WITH DELAY or WITHOUT DELAY")
    interval = parse_amount(cursor)
    if interval.duration is None or interval.duration <= datetime.timedelta():
        message = "A delay is a time of 1 millisecond or more, without months."
        raise cursor.script.error("SQL_TYPE", message, interval.span)
    return max(1, round(interval.duration.total_seconds() * 1000))


def parse_create_model(cursor: Cursor, start: Span, *, replaces: bool) -> CreateModel:
    """What comes behind CREATE ... MODEL."""
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    path = parse_path(cursor, "a model's name")
    inputs = _columns(cursor) if cursor.take("INPUT") else ()
    outputs = _columns(cursor) if cursor.take("OUTPUT") else ()
    if cursor.take("COMMENT"):
        cursor.string()
    options = parse_options(cursor) if cursor.take("WITH") else ()
    return CreateModel(path, inputs, outputs, options, cursor.since(start), if_not_exists, replaces)


def _columns(cursor: Cursor) -> tuple[ColumnDefinition, ...]:
    cursor.need_symbol("(")
    columns = []
    while True:
        token = cursor.name("a column's name")
        columns.append(ColumnDefinition(token.text, token.span, parse_type(cursor)))
        if cursor.take("COMMENT"):
            cursor.string()
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    return tuple(columns)


_REFUSED = {
    "ADD": ("JAR files are not loaded: functions and connectors of Java do not run here.",
            "Write functions in Python: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON."),
    "REMOVE": ("JAR files are not loaded, so none is removed.", "Leave the statement out."),
    "DELETE": ("DELETE is not supported: streams have no rows that could be deleted.",
               "Write tombstones or deletions through an 'upsert-rocketmq' table."),
    "UPDATE": ("UPDATE is not supported: streams have no rows that could be changed.",
               "INSERT INTO an 'upsert-rocketmq' table replaces the row of a key."),
    "TRUNCATE": ("TRUNCATE is not supported: topics keep their messages until they are too old.",
                 "Delete and create the topic with millstream topic."),
    "LOAD": ("Modules are not supported.", "All functions are always there."),
    "UNLOAD": ("Modules are not supported.", "All functions are always there."),
    "CALL": ("Procedures are not supported.", "The statements and commands of millstream do what they would."),
    "COMPILE": ("Compiled plans are not supported.", "Keep the script; its plan is the same at every start."),
    "MERGE": ("MERGE is not supported.", "INSERT INTO an 'upsert-rocketmq' table replaces the row of a key."),
    "REFRESH": ("Materialized tables are not supported.", "Use INSERT INTO a table that keeps its rows."),
}  # fmt: skip

_NOT_CREATED = {
    "MATERIALIZED TABLE": "CREATE TABLE ... AS SELECT fills a table by a job that goes on.",
    "CONNECTION": "Tables have addresses and credentials in their own options, as in 'password' = '${env:NAME}'.",
    "PROCEDURE": "Statements, and the commands of millstream, do what procedures would.",
}
_EXPLAIN_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


def parse_script(script: Script, variables: Variables | None = None) -> list[tuple[Span, Statement]]:
    """The statements of the script with the places of their first words, in order. Raises SqlError."""
    cursor = cursor_of(script, variables)
    statements: list[tuple[Span, Statement]] = []
    while not cursor.at_end:
        if cursor.take_symbol(";"):
            continue
        start = cursor.here()
        try:
            statements.append((start, _statement(cursor)))
        except RecursionError:
            raise too_deep(script, start) from None
        if not cursor.at_end and not cursor.sees_symbol(";"):
            raise cursor.expected_error("; or the end of the statement")
    return statements


def too_deep(script: Script, start: Span) -> SqlError:
    """The error for a statement that is nested deeper than Python's stack."""
    return script.error("SQL_UNSUPPORTED", "The statement is nested too deeply.", start)


def _statement(cursor: Cursor) -> Statement:
    token = cursor.peek()
    word = token.text.upper() if token is not None and token.kind is TokenKind.WORD else ""
    if cursor.sees_query():
        return Query(parse_select(cursor))
    parser = _PARSERS.get(word)
    if parser is not None:
        return parser(cursor)
    if word in _REFUSED:
        message, remedy = _REFUSED[word]
        raise cursor.unsupported_error(message, remedy=remedy)
    near = did_you_mean(word, FIRST_WORDS) if word else ""
    found = "the end" if token is None else repr(token.text[:40])
    known = f"A statement begins with {', '.join(FIRST_WORDS)}."
    raise cursor.script.error("SQL_SYNTAX", f"No statement begins with {found}.", cursor.here(), remedy=near or known)


def _create(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    replaces = cursor.take("OR", "REPLACE")
    temporary = cursor.take("TEMPORARY")
    system = temporary and cursor.take("SYSTEM")
    if cursor.take("FUNCTION"):
        return parse_create_function(cursor, start, temporary=temporary, system=system, replaces=replaces)
    if system:
        raise cursor.expected_error("FUNCTION")
    if cursor.take("TABLE"):
        return parse_create_table(cursor, start, temporary=temporary, replaces=replaces)
    if cursor.take("VIEW"):
        return _create_view(cursor, start, temporary=temporary, replaces=replaces)
    if not replaces and not temporary:
        if cursor.take("CATALOG"):
            return parse_create_catalog(cursor, start)
        if cursor.take("DATABASE"):
            return parse_create_database(cursor, start)
    if cursor.take("MODEL"):
        return parse_create_model(cursor, start, replaces=replaces)
    cursor.take("OR", "ALTER")
    for words, remedy in _NOT_CREATED.items():
        if cursor.sees(*words.split()):
            raise cursor.unsupported_error(f"CREATE {words} is not supported.", remedy=remedy)
    raise cursor.expected_error("TABLE, VIEW, FUNCTION, MODEL, CATALOG or DATABASE")


def _replace(cursor: Cursor) -> Statement:
    """REPLACE TABLE ... AS, which is CREATE OR REPLACE TABLE."""
    start = cursor.advance().span
    cursor.need("TABLE")
    return parse_create_table(cursor, start, temporary=False, replaces=True)


def _create_view(cursor: Cursor, start: Span, *, temporary: bool, replaces: bool) -> CreateView:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    path = parse_path(cursor, "a view's name")
    span = cursor.since(start)
    columns: tuple[str, ...] = ()
    if cursor.sees_symbol("("):
        columns = tuple(name.parts[0] for name in name_list(cursor))
    if cursor.take("COMMENT"):
        cursor.string()
    cursor.need("AS")
    before = cursor.here()
    query = parse_select(cursor)
    after = cursor.since(before)
    text = cursor.script.text[after.start : after.end]
    return CreateView(path, columns, query, span, text, if_not_exists, replaces, temporary)


def _insert(cursor: Cursor) -> Insert:
    start = cursor.here()
    cursor.need("INSERT")
    overwrites = cursor.take("OVERWRITE")
    if not overwrites and not cursor.take("INTO"):
        raise cursor.expected_error("INTO or OVERWRITE")
    cursor.take("TABLE")
    path = parse_path(cursor, "a table's name")
    span = cursor.since(start)
    hints = parse_hints(cursor, of_table=True)
    partition = parse_partition(cursor) if cursor.take("PARTITION") else ()
    columns: tuple[NameTerm, ...] = ()
    following = cursor.peek(1)
    if cursor.sees_symbol("(") and not (following is not None and following.is_word(*QUERY_WORDS)):
        columns = name_list(cursor)
    query = parse_select(cursor)
    emit: Emit | None = parse_emit(cursor) if cursor.sees("EMIT") else None
    on_conflict = _on_conflict(cursor) if cursor.take("ON", "CONFLICT") else None
    return Insert(path, columns, query, span, overwrites, partition, emit, hints, on_conflict)


def _on_conflict(cursor: Cursor) -> OnConflict:
    cursor.need("DO")
    for choice in OnConflict:
        if cursor.take(choice.value):
            return choice
    raise cursor.expected_error("NOTHING, ERROR or DEDUPLICATE")


def _parse_execute(cursor: Cursor) -> Statement:
    if cursor.take("EXECUTE"):
        if cursor.sees("INSERT"):
            return _insert(cursor)
        if cursor.sees("PLAN"):
            raise cursor.unsupported_error("Compiled plans are not supported.", remedy="Run the script.")
        if cursor.sees_query():
            return Query(parse_select(cursor))
    return _statement_set(cursor)


def _statement_set(cursor: Cursor) -> StatementSet:
    """STATEMENT SET BEGIN ... END, or BEGIN STATEMENT SET; ... END."""
    if cursor.sees("BEGIN"):
        cursor.need("BEGIN", "STATEMENT", "SET")
    else:
        cursor.need("STATEMENT", "SET", "BEGIN")
    inserts = []
    while not cursor.sees("END"):
        if cursor.take_symbol(";"):
            continue
        if not cursor.sees("INSERT"):
            raise cursor.expected_error("INSERT INTO or END")
        inserts.append(_insert(cursor))
        if not cursor.sees_symbol(";") and not cursor.sees("END"):
            raise cursor.expected_error("; or END")
    if not inserts:
        raise cursor.expected_error("INSERT INTO")
    cursor.need("END")
    return StatementSet(tuple(inserts))


def _explain(cursor: Cursor) -> Statement:
    cursor.need("EXPLAIN")
    details: list[str] = []
    if not cursor.take("PLAN", "FOR"):
        while word := next((word for word in _EXPLAIN_DETAILS if cursor.take(word)), None):
            details.append(word)
            if not cursor.take_symbol(","):
                break
    if cursor.sees("STATEMENT", "SET") or cursor.sees("BEGIN", "STATEMENT"):
        return Explain(_statement_set(cursor), tuple(details))
    if cursor.take("EXECUTE") or cursor.sees("INSERT"):
        return Explain(_insert(cursor) if cursor.sees("INSERT") else _statement_set(cursor), tuple(details))
    if cursor.sees_query():
        return Explain(Query(parse_select(cursor)), tuple(details))
    raise cursor.expected_error("SELECT, INSERT INTO or STATEMENT SET")


def _analyze(cursor: Cursor) -> Statement:
    cursor.need("ANALYZE", "TABLE")
    path = parse_path(cursor, "a table's name")
    if cursor.take("PARTITION"):
        parse_partition(cursor)
    cursor.need("COMPUTE", "STATISTICS")
    if cursor.take("FOR"):
        if cursor.take("ALL"):
            cursor.need("COLUMNS")
        else:
            cursor.need("COLUMNS")
            cursor.name("a column's name")
            while cursor.take_symbol(","):
                cursor.name("a column's name")
    return AnalyzeTable(path)


_PARSERS: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": _create,
    "REPLACE": _replace,
    "ALTER": parse_alter,
    "DROP": parse_drop,
    "INSERT": _insert,
    "EXECUTE": _parse_execute,
    "BEGIN": _parse_execute,
    "EXPLAIN": _explain,
    "SHOW": parse_show,
    "DESCRIBE": parse_describe,
    "DESC": parse_describe,
    "USE": parse_use,
    "SET": parse_setting,
    "RESET": parse_setting,
    "ANALYZE": _analyze,
    "STOP": parse_stop,
    "PRINT": parse_print,
}

FIRST_WORDS = (*QUERY_WORDS, *_PARSERS)
"""What a statement begins with."""
