"""Statements: a whole script becomes a list of them, or one error with its place."""

from __future__ import annotations

from difflib import get_close_matches

from millstream.streams.errors import SqlError
from millstream.streams.sql.cursor import Cursor
from millstream.streams.sql.lexer import TokenKind, tokenize
from millstream.streams.sql.query_parser import parse_select
from millstream.streams.sql.script import Script, Span
from millstream.streams.sql.syntax import (
    ColumnDefinition,
    CreateTable,
    CreateView,
    Describe,
    Drop,
    Explain,
    Insert,
    NameTerm,
    Query,
    Reset,
    SetOption,
    Show,
    Statement,
    StatementSet,
    WatermarkDefinition,
)
from millstream.streams.sql.term_parser import parse_term
from millstream.streams.sql.type_parser import parse_type

__all__ = ["parse_script", "too_deep"]

_STATEMENTS = (
    "CREATE TABLE, CREATE VIEW, DROP, INSERT INTO, SELECT, EXECUTE STATEMENT SET, SET, RESET, EXPLAIN, SHOW, DESCRIBE"
)
_KNOWN_ELSEWHERE = (
    "ALTER", "ANALYZE", "ADD", "REMOVE", "USE", "LOAD", "UNLOAD", "CALL", "DELETE", "UPDATE", "TRUNCATE", "WITH",
    "VALUES", "COMPILE", "STOP", "REFRESH", "MERGE", "QUIT", "CLEAR", "HELP",
)  # fmt: skip
_SHOWN = ("TABLES", "VIEWS", "FUNCTIONS")


def parse_script(script: Script) -> list[tuple[Span, Statement]]:
    """The statements of the script with the places of their first words, in order. Raises SqlError."""
    cursor = Cursor(script, tokenize(script))
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
            raise cursor.expected("; or the end of the statement")
    return statements


def too_deep(script: Script, start: Span) -> SqlError:
    """The error for a statement that is nested deeper than Python's stack."""
    return script.error("SQL_UNSUPPORTED", "The statement is nested too deeply.", start)


def _statement(cursor: Cursor) -> Statement:
    token = cursor.peek()
    word = token.text.upper() if token is not None and token.kind is TokenKind.WORD else ""
    match word:
        case "CREATE":
            return _create(cursor)
        case "DROP":
            return _drop(cursor)
        case "INSERT":
            return _insert(cursor)
        case "SELECT":
            return Query(parse_select(cursor))
        case "EXECUTE" | "BEGIN":
            return _executed(cursor)
        case "SET" | "RESET":
            return _setting(cursor, word)
        case "EXPLAIN":
            return _explain(cursor)
        case "SHOW":
            return _show(cursor)
        case "DESCRIBE" | "DESC":
            start = cursor.advance().span
            return Describe(cursor.name("a table's name").text, cursor.since(start))
    return _refuse(cursor, word)


def _refuse(cursor: Cursor, word: str) -> Statement:
    if word in _KNOWN_ELSEWHERE:
        raise cursor.unsupported(f"{word} is not supported.", remedy=f"Supported: {_STATEMENTS}.")
    first_words = ("CREATE", "DROP", "INSERT", "SELECT", "EXECUTE", "SET", "RESET", "EXPLAIN", "SHOW", "DESCRIBE")
    near = get_close_matches(word, first_words, 1)
    remedy = f"Did you mean {near[0]}?" if near else f"A statement begins with {', '.join(first_words)}."
    token = cursor.peek()
    found = "the end" if token is None else repr(token.text[:40])
    raise cursor.script.error("SQL_SYNTAX", f"No statement begins with {found}.", cursor.here(), remedy=remedy)


def _create(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    if cursor.sees("OR", "REPLACE"):
        raise cursor.unsupported("OR REPLACE is not supported.", remedy="Use DROP first.")
    cursor.take("TEMPORARY")
    token = cursor.peek()
    if cursor.take("TABLE"):
        return _create_table(cursor, start)
    if cursor.take("VIEW"):
        return _create_view(cursor, start)
    if token is not None and token.is_word("FUNCTION", "CATALOG", "DATABASE", "MODEL", "MATERIALIZED", "SYSTEM"):
        raise cursor.unsupported(f"CREATE {token.text.upper()} is not supported.", remedy=f"Supported: {_STATEMENTS}.")
    raise cursor.expected("TABLE or VIEW")


def _simple_name(cursor: Cursor, what: str) -> str:
    token = cursor.name(what)
    if cursor.sees_symbol("."):
        raise cursor.unsupported("Catalogs and databases are not supported.", remedy="Use the name alone.")
    return token.text


def _create_view(cursor: Cursor, start: Span) -> Statement:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = _simple_name(cursor, "a view's name")
    span = cursor.since(start)
    columns: list[str] = []
    if cursor.take_symbol("("):
        columns.append(cursor.name("a column's name").text)
        while cursor.take_symbol(","):
            columns.append(cursor.name("a column's name").text)
        cursor.need_symbol(")")
    if cursor.take("COMMENT"):
        cursor.string()
    cursor.need("AS")
    return CreateView(name, tuple(columns), parse_select(cursor), if_not_exists, span)


def _create_table(cursor: Cursor, start: Span) -> Statement:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = _simple_name(cursor, "a table's name")
    span = cursor.since(start)
    columns: list[ColumnDefinition] = []
    watermark: WatermarkDefinition | None = None
    key: tuple[NameTerm, ...] = ()
    if not cursor.sees_symbol("("):
        raise cursor.expected("( and the columns")
    cursor.advance()
    while True:
        if cursor.sees("WATERMARK"):
            if watermark is not None:
                raise cursor.script.error("SQL_SYNTAX", "A table has one WATERMARK.", cursor.here())
            watermark = _watermark(cursor)
        elif cursor.sees("PRIMARY") or cursor.sees("CONSTRAINT") or cursor.sees("UNIQUE"):
            if key:
                raise cursor.script.error("SQL_SYNTAX", "A table has one PRIMARY KEY.", cursor.here())
            key = _primary_key(cursor)
        elif cursor.sees("PERIOD"):
            raise cursor.unsupported("PERIOD FOR SYSTEM_TIME is not supported.")
        else:
            columns.append(_column(cursor))
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    options = _table_options(cursor)
    return CreateTable(name, tuple(columns), watermark, key, options, if_not_exists, span)


def _table_options(cursor: Cursor) -> tuple[tuple[str, str, Span], ...]:
    if cursor.take("COMMENT"):
        cursor.string()
    for word in ("PARTITIONED", "DISTRIBUTED", "LIKE", "AS"):
        if cursor.sees(word):
            raise cursor.unsupported(f"{word} in CREATE TABLE is not supported.")
    cursor.need("WITH")
    cursor.need_symbol("(")
    options = []
    while not cursor.sees_symbol(")"):
        key = cursor.string("an option's 'name'")
        cursor.need_symbol("=")
        value = cursor.string("an option's 'value'")
        options.append((key.text, value.text, key.span.to(value.span)))
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    if cursor.sees("LIKE") or cursor.sees("AS"):
        raise cursor.unsupported("CREATE TABLE ... LIKE and ... AS are not supported.")
    return tuple(options)


def _watermark(cursor: Cursor) -> WatermarkDefinition:
    cursor.need("WATERMARK")
    cursor.need("FOR")
    token = cursor.name("a column's name")
    cursor.need("AS")
    return WatermarkDefinition(NameTerm((token.text,), token.span), parse_term(cursor))


def _primary_key(cursor: Cursor) -> tuple[NameTerm, ...]:
    if cursor.take("CONSTRAINT"):
        cursor.name("a constraint's name")
    if cursor.sees("UNIQUE"):
        raise cursor.unsupported("UNIQUE is not supported.", remedy="Use PRIMARY KEY (...) NOT ENFORCED.")
    cursor.need("PRIMARY", "KEY")
    cursor.need_symbol("(")
    names = []
    while True:
        token = cursor.name("a column's name")
        names.append(NameTerm((token.text,), token.span))
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    if not cursor.take("NOT", "ENFORCED"):
        raise cursor.expected("NOT ENFORCED (keys are not checked)")
    return tuple(names)


def _column(cursor: Cursor) -> ColumnDefinition:
    token = cursor.name("a column's name")
    if cursor.take("AS"):
        expression = parse_term(cursor)
        _comment(cursor)
        return ColumnDefinition(token.text, token.span, expression=expression)
    data_type = parse_type(cursor)
    key: str | None = None
    virtual = False
    if cursor.take("METADATA"):
        key = cursor.string("a metadata 'key'").text if cursor.take("FROM") else token.text
        virtual = cursor.take("VIRTUAL")
    elif cursor.sees("PRIMARY"):
        raise cursor.unsupported(
            "PRIMARY KEY behind a column is not supported.", remedy="Write PRIMARY KEY (column) NOT ENFORCED."
        )
    _comment(cursor)
    return ColumnDefinition(token.text, token.span, data_type, None, key, virtual)


def _comment(cursor: Cursor) -> None:
    if cursor.take("COMMENT"):
        cursor.string()


def _insert(cursor: Cursor) -> Insert:
    start = cursor.here()
    cursor.need("INSERT")
    if cursor.sees("OVERWRITE"):
        raise cursor.unsupported("INSERT OVERWRITE is not supported.", remedy="Use INSERT INTO.")
    cursor.need("INTO")
    cursor.take("TABLE")
    table = _simple_name(cursor, "a table's name")
    span = cursor.since(start)
    columns: list[NameTerm] = []
    if cursor.sees("PARTITION"):
        raise cursor.unsupported("PARTITION in INSERT is not supported.")
    if cursor.take_symbol("("):
        while True:
            token = cursor.name("a column's name")
            columns.append(NameTerm((token.text,), token.span))
            if not cursor.take_symbol(","):
                break
        cursor.need_symbol(")")
    return Insert(table, tuple(columns), parse_select(cursor), span)


def _executed(cursor: Cursor) -> Statement:
    if cursor.take("EXECUTE"):
        if cursor.sees("INSERT"):
            return _insert(cursor)
        if cursor.sees("PLAN"):
            raise cursor.unsupported("EXECUTE PLAN is not supported.")
        cursor.need("STATEMENT", "SET")
        cursor.need("BEGIN")
    else:
        cursor.need("BEGIN", "STATEMENT", "SET")
    inserts = []
    while not cursor.sees("END"):
        if cursor.take_symbol(";"):
            continue
        if not cursor.sees("INSERT"):
            raise cursor.expected("INSERT INTO or END")
        inserts.append(_insert(cursor))
        if not cursor.sees_symbol(";") and not cursor.sees("END"):
            raise cursor.expected("; or END")
    if not inserts:
        raise cursor.expected("INSERT INTO")
    cursor.need("END")
    return StatementSet(tuple(inserts))


def _setting(cursor: Cursor, word: str) -> Statement:
    start = cursor.advance().span
    if cursor.at_end or cursor.sees_symbol(";"):
        return Reset(None, start) if word == "RESET" else SetOption(None, "", start)
    key = _key(cursor)
    if word == "RESET":
        return Reset(key, cursor.since(start))
    cursor.need_symbol("=")
    token = cursor.peek()
    if token is None or token.kind is TokenKind.SYMBOL:
        raise cursor.expected("a 'value'")
    return SetOption(key, cursor.advance().text, cursor.since(start))


def _key(cursor: Cursor) -> str:
    """A setting's name, quoted or as bare words joined by points and dashes."""
    token = cursor.peek()
    if token is not None and token.kind is TokenKind.STRING:
        return cursor.advance().text
    parts = [cursor.name("a setting's name").text]
    while cursor.sees_symbol(".") or cursor.sees_symbol("-"):
        parts.append(cursor.advance().text)
        parts.append(cursor.advance().text)
    return "".join(parts)


def _explain(cursor: Cursor) -> Statement:
    cursor.need("EXPLAIN")
    cursor.take("PLAN", "FOR")
    for word in ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"):
        if cursor.sees(word):
            raise cursor.unsupported(f"EXPLAIN {word} is not supported.", remedy="Use EXPLAIN alone.")
    if cursor.take("STATEMENT", "SET"):
        cursor.need("BEGIN")
        raise cursor.unsupported("EXPLAIN STATEMENT SET is not supported.", remedy="EXPLAIN each INSERT.")
    if cursor.sees("INSERT"):
        return Explain(_insert(cursor))
    if cursor.sees("SELECT"):
        return Explain(Query(parse_select(cursor)))
    raise cursor.expected("SELECT or INSERT INTO")


def _show(cursor: Cursor) -> Statement:
    cursor.need("SHOW")
    for what in _SHOWN:
        if cursor.take(what):
            if cursor.sees("LIKE") or cursor.sees("FROM") or cursor.sees("IN"):
                raise cursor.unsupported("SHOW takes no filter here.")
            return Show(what)
    raise cursor.unsupported("Only SHOW TABLES, SHOW VIEWS and SHOW FUNCTIONS are supported.")


def _drop(cursor: Cursor) -> Statement:
    start = cursor.advance().span
    cursor.take("TEMPORARY")
    kind = next((word for word in ("TABLE", "VIEW") if cursor.take(word)), None)
    if kind is None:
        raise cursor.unsupported("Only DROP TABLE and DROP VIEW are supported.")
    if_exists = cursor.take("IF", "EXISTS")
    return Drop(kind, _simple_name(cursor, "a name"), if_exists, cursor.since(start))
