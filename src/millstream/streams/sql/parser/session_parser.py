"""Session statements: SET, SHOW, DESCRIBE, USE, catalogs, databases, functions, jobs."""

from __future__ import annotations

from millstream.streams.errors import SqlError
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.parser.names import parse_key, parse_partition, parse_path
from millstream.streams.sql.parser.table_parser import parse_options
from millstream.streams.sql.syntax.script import Span, did_you_mean
from millstream.streams.sql.syntax.statements import (
    CreateCatalog,
    CreateDatabase,
    CreateFunction,
    Describe,
    Drop,
    PrintTopic,
    Reset,
    SetOption,
    Show,
    Statement,
    StopJob,
    Use,
)
from millstream.streams.sql.syntax.tables import Path

__all__ = [
    "parse_create_catalog",
    "parse_create_database",
    "parse_create_function",
    "parse_describe",
    "parse_drop",
    "parse_print",
    "parse_setting",
    "parse_show",
    "parse_stop",
    "parse_use",
]

_LISTED = (
    "TABLES",
    "VIEWS",
    "FUNCTIONS",
    "USER FUNCTIONS",
    "MODELS",
    "CATALOGS",
    "DATABASES",
    "JOBS",
    "JARS",
    "MODULES",
    "FULL MODULES",
    "PROCEDURES",
    "MATERIALIZED TABLES",
)
_IN_DATABASE = ("TABLES", "VIEWS", "FUNCTIONS", "USER FUNCTIONS", "MODELS", "PROCEDURES", "MATERIALIZED TABLES")
_SHOWN_ALONE = ("CURRENT CATALOG", "CURRENT DATABASE")
_SHOWN_OF = ("CREATE TABLE", "CREATE VIEW", "CREATE CATALOG", "COLUMNS", "PARTITIONS")
_NOT_SHOWN = {
    "CREATE DATABASE": "A database has no options: CREATE DATABASE and its name make it again.",
    "CREATE FUNCTION": "DESCRIBE FUNCTION says what it calls.",
    "CREATE MODEL": "DESCRIBE MODEL says which columns it takes and gives.",
    "CREATE MATERIALIZED TABLE": "There are none: INSERT INTO keeps a table up to date.",
    "CREATE OR ALTER": "There are no materialized tables: INSERT INTO keeps a table up to date.",
}


def parse_setting(cursor: Cursor) -> Statement:
    """SET and RESET with or without a key; keys and values in quotes or not."""
    resets = cursor.sees("RESET")
    start = cursor.advance().span
    if cursor.at_end or cursor.sees_symbol(";"):
        return Reset(None, start) if resets else SetOption(None, "", start)
    key, _ = parse_key(cursor, "a setting's name")
    if resets:
        return Reset(key, cursor.since(start))
    cursor.need_symbol("=")
    if cursor.at_end or cursor.sees_symbol(";"):
        raise cursor.expected_error("a 'value'")
    words: list[str] = []
    end = cursor.here().start
    while (token := cursor.peek()) is not None and not token.is_symbol(";"):
        words += [" "] if words and token.span.start > end else []
        words.append(token.text)
        end = token.span.end
        cursor.advance()
    return SetOption(key, "".join(words), cursor.since(start))


def parse_show(cursor: Cursor) -> Statement:
    """SHOW of lists with their filters, of the current catalog or database, and of how something was made."""
    start = cursor.advance().span
    for what in _SHOWN_ALONE:
        if cursor.take(*what.split()):
            return Show(what)
    for what in _SHOWN_OF:
        if cursor.take(*what.split()):
            return _parse_shown(cursor, what)
    for what in _LISTED:
        if cursor.take(*what.split()):
            space: Path | None = None
            inside = what in (*_IN_DATABASE, "DATABASES") and (cursor.take("FROM") or cursor.take("IN"))
            if inside:
                of_catalog = what == "DATABASES"
                space = parse_path(cursor, "a catalog's name" if of_catalog else "a database's name", 2 - of_catalog)
            return _parse_show_filter(cursor, Show(what, space))
    for what, remedy in _NOT_SHOWN.items():
        if cursor.sees(*what.split()):
            raise cursor.unsupported_error(f"SHOW {what} is not supported.", start, remedy=remedy)
    token = cursor.peek()
    near = "" if token is None else did_you_mean(token.text.upper(), _LISTED)
    known = f"Lists: {', '.join(_LISTED)}. Also: {', '.join((*_SHOWN_ALONE, *_SHOWN_OF))}."
    found = "the end" if token is None else repr(token.text[:40])
    raise cursor.script.error("SQL_SYNTAX", f"Nothing to show is called {found}.", cursor.here(), remedy=near or known)


def _parse_shown(cursor: Cursor, what: str) -> Show:
    """What stands behind SHOW COLUMNS, PARTITIONS and CREATE."""
    if what == "COLUMNS" and not cursor.take("FROM"):
        cursor.need("IN")
    if what == "CREATE CATALOG":
        return Show(what, parse_path(cursor, "a catalog's name", 1))
    path = parse_path(cursor, "a view's name" if what == "CREATE VIEW" else "a table's name")
    if what == "PARTITIONS":
        return Show(what, path, partition=parse_partition(cursor) if cursor.take("PARTITION") else ())
    return _parse_show_filter(cursor, Show(what, path)) if what == "COLUMNS" else Show(what, path)


def _parse_show_filter(cursor: Cursor, show: Show) -> Show:
    negated = cursor.take("NOT")
    for word in ("LIKE", "ILIKE"):
        if cursor.take(word):
            pattern = cursor.string("a 'pattern'").text
            return Show(show.what, show.path, pattern, negated, any_case=word == "ILIKE")
    if negated:
        raise cursor.expected_error("LIKE or ILIKE")
    return show


def parse_describe(cursor: Cursor) -> Statement:
    """DESCRIBE or DESC of a table, view, catalog, database, function or model."""
    cursor.advance()
    for kind in ("CATALOG", "DATABASE", "FUNCTION", "MODEL", "JOB"):
        following = cursor.peek(1)
        if cursor.sees(kind) and following is not None and following.kind is not TokenKind.SYMBOL:
            if kind == "JOB":
                raise cursor.unsupported_error("DESCRIBE JOB is not supported.", remedy="Use SHOW JOBS.")
            cursor.advance()
            extended = cursor.take("EXTENDED")
            return Describe(parse_path(cursor, "a name"), kind, extended)
    extended = cursor.take("EXTENDED")
    return Describe(parse_path(cursor, "a table's name"), extended=extended)


def parse_use(cursor: Cursor) -> Statement:
    """USE [CATALOG] name."""
    cursor.advance()
    if cursor.sees("MODULES"):
        raise cursor.unsupported_error("Modules are not supported.", remedy="All functions are always there.")
    following = cursor.peek(1)
    if cursor.sees("CATALOG") and following is not None and following.kind is not TokenKind.SYMBOL:
        cursor.advance()
        return Use("CATALOG", parse_path(cursor, "a catalog's name", 1))
    return Use("DATABASE", parse_path(cursor, "a database's name", 2))


def parse_create_catalog(cursor: Cursor, start: Span) -> Statement:
    """What comes behind CREATE CATALOG."""
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = parse_path(cursor, "a catalog's name", 1)
    comment = cursor.string().text if cursor.take("COMMENT") else ""
    options = parse_options(cursor) if cursor.take("WITH") else ()
    return CreateCatalog(name.parts[0], options, comment, if_not_exists, cursor.since(start))


def parse_create_database(cursor: Cursor, start: Span) -> Statement:
    """What comes behind CREATE DATABASE; its options are only kept by catalogs that are not here."""
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    path = parse_path(cursor, "a database's name", 2)
    if cursor.take("COMMENT"):
        cursor.string()
    if cursor.take("WITH"):
        parse_options(cursor)
    return CreateDatabase(path, if_not_exists, cursor.since(start))


def parse_create_function(
    cursor: Cursor, start: Span, *, temporary: bool, system: bool, replaces: bool
) -> CreateFunction:
    """What comes behind CREATE ... FUNCTION."""
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    path = parse_path(cursor, "a function's name")
    cursor.need("AS")
    target = cursor.string("the 'module.name' of what is called").text
    language = ""
    if cursor.take("LANGUAGE"):
        language = cursor.name("PYTHON or JAVA").text.upper()
        if language not in ("PYTHON", "JAVA", "SCALA"):
            raise cursor.unsupported_error(f"Functions in {language} are not supported.", remedy="Use PYTHON.")
    jars = []
    if cursor.take("USING"):
        while True:
            if language == "PYTHON" or not (cursor.take("ARTIFACT") or cursor.sees("JAR")):
                raise _unsupported_resource(cursor)
            cursor.take("JAR")
            jars.append(cursor.string("a 'path'").text)
            if not cursor.take_symbol(","):
                break
    options = parse_options(cursor) if cursor.take("WITH") else ()
    span = cursor.since(start)
    return CreateFunction(
        path, target, language, tuple(jars), options, span, if_not_exists, replaces, temporary, system
    )


def _unsupported_resource(cursor: Cursor) -> SqlError:
    if not any(map(cursor.sees, ("JAR", "ARTIFACT", "FILE", "ARCHIVE"))):
        return cursor.expected_error("JAR or ARTIFACT")
    message = "Files and archives of functions are not taken here."
    remedy = "Let PYTHONPATH find the module, and send it along: millstream job run --code DIRECTORY."
    return cursor.unsupported_error(message, remedy=remedy)


def parse_drop(cursor: Cursor) -> Statement:
    """DROP of a table, view, function, model, catalog or database."""
    start = cursor.advance().span
    temporary = cursor.take("TEMPORARY")
    cursor.take("SYSTEM")
    kinds = ("TABLE", "VIEW", "FUNCTION", "MODEL", *(() if temporary else ("CATALOG", "DATABASE")))
    kind = next((word for word in kinds if cursor.take(word)), None)
    if kind is None and cursor.sees("MATERIALIZED"):
        raise cursor.unsupported_error(
            "DROP MATERIALIZED TABLE is not supported.", remedy="There are none: DROP TABLE."
        )
    if kind is None:
        raise cursor.expected_error(f"one of {', '.join(kinds)}")
    if_exists = cursor.take("IF", "EXISTS")
    most = {"CATALOG": 1, "DATABASE": 2}.get(kind, 3)
    path: Path = parse_path(cursor, f"a {kind.lower()}'s name", most)
    cascades = kind == "DATABASE" and cursor.take("CASCADE")
    if kind == "DATABASE" and not cascades:
        cursor.take("RESTRICT")
    return Drop(kind, path, if_exists, cursor.since(start), temporary, cascades)


def parse_stop(cursor: Cursor) -> Statement:
    """STOP JOB 'name'."""
    start = cursor.advance().span
    cursor.need("JOB")
    job = cursor.string("a job's 'name'").text
    if cursor.sees("WITH"):
        message = "Savepoints and drains are not supported."
        raise cursor.unsupported_error(
            message, remedy="STOP JOB 'name' keeps the checkpoint; a later start goes on from it."
        )
    return StopJob(job, cursor.since(start))


def parse_print(cursor: Cursor) -> Statement:
    """PRINT 'topic' [FROM BEGINNING] [LIMIT n]."""
    start = cursor.advance().span
    topic = cursor.string("a topic's 'name'").text
    from_beginning = cursor.take("FROM")
    if from_beginning:
        cursor.need("BEGINNING")
    limit: int | None = None
    if cursor.take("LIMIT"):
        token = cursor.peek()
        if token is None or token.kind is not TokenKind.NUMBER or not token.text.isdecimal() or not int(token.text):
            raise cursor.expected_error("a number of messages")
        limit = int(cursor.advance().text)
    return PrintTopic(topic, cursor.since(start), from_beginning, limit)
