"""FROM: tables, sub-queries, windows, table functions and the joins between them.

ML_PREDICT in FROM as Flink has it.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.sql.parser.cursor import RESERVED, Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.parser.match_parser import parse_match
from millstream.streams.sql.parser.names import name_list, parse_path, parse_table
from millstream.streams.sql.parser.table_function_parser import (
    CHANGELOG_FUNCTIONS,
    elsewhere,
    parse_changelog,
    parse_rows,
    parse_window,
    sees_elsewhere,
)
from millstream.streams.sql.syntax.expressions import CallTerm, NameTerm, Term
from millstream.streams.sql.syntax.queries import (
    Alias,
    ChangelogSource,
    FilteredSource,
    FunctionSource,
    JoinSource,
    LateralSource,
    PredictionSource,
    Source,
    SubquerySource,
    TableSource,
    WindowSource,
)
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.tables import Path

__all__ = ["bare_alias", "parse_prediction", "parse_source"]

_ORDER = ("INPUT", "MODEL", "ARGS", "CONFIG")
_EXAMPLE = "Write ML_PREDICT(TABLE t, MODEL m, DESCRIPTOR(a, b))."


def parse_prediction(cursor: Cursor, start: Span) -> PredictionSource:
    """ML_PREDICT(TABLE t, MODEL m, DESCRIPTOR(a, b)), by place or by name; its name comes next."""
    cursor.advance()
    cursor.need_symbol("(")
    table: TableSource | SubquerySource | None = None
    model: Path | None = None
    features: tuple[NameTerm, ...] = ()
    for place in range(len(_ORDER)):
        match _argument_name(cursor) or _ORDER[place]:
            case "INPUT" if table is None:
                table = parse_rows(cursor)
            case "MODEL" if model is None:
                cursor.need("MODEL")
                model = parse_path(cursor, "a model's name")
            case "ARGS" if not features:
                cursor.need("DESCRIPTOR")
                features = name_list(cursor)
            case "CONFIG":
                message = "CONFIG of ML_PREDICT is not supported: models here are asked for many rows at once."
                raise cursor.unsupported_error(message, remedy="Leave it out.")
            case _:
                raise cursor.script.error("SQL_SYNTAX", "ML_PREDICT takes each argument once.", cursor.here())
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    span = cursor.since(start)
    if table is None or model is None or not features:
        message = "ML_PREDICT needs a table, a model and the columns that it takes."
        raise cursor.script.error("SQL_SYNTAX", message, span, remedy=_EXAMPLE)
    return PredictionSource(table, model.parts, model.span, features, span)


def _argument_name(cursor: Cursor) -> str | None:
    token, arrow = cursor.peek(), cursor.peek(1)
    if token is None or arrow is None or not arrow.is_symbol("=>"):
        return None
    cursor.advance()
    cursor.advance()
    if token.text.upper() not in _ORDER:
        message = f"ML_PREDICT has no argument {token.text}."
        raise cursor.script.error("SQL_SYNTAX", message, token.span, remedy=f"It has {', '.join(_ORDER[:3])}.")
    return token.text.upper()


_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_NO_ALIAS = frozenset({"USING", "MINUS", "EMIT", "QUALIFY", "TABLESAMPLE", *RESERVED})
"""Words that go on with the query behind a table or an item, so they are no alias without AS."""


def bare_alias(cursor: Cursor) -> str | None:
    """An alias without AS, if a name follows that begins no clause."""
    token = cursor.peek()
    if token is None or token.kind not in (TokenKind.WORD, TokenKind.NAME):
        return None
    if token.kind is TokenKind.WORD and token.text.upper() in _NO_ALIAS:
        return None
    return cursor.advance().text


def parse_source(cursor: Cursor) -> Source:
    """What stands behind FROM."""
    start = cursor.here()
    source = _parse_joins(cursor)
    while cursor.take_symbol(","):
        right = _parse_joins(cursor)
        source = JoinSource(source, right, "CROSS", None, (), False, cursor.since(start))
    return source


def _parse_joins(cursor: Cursor) -> Source:
    start = cursor.here()
    source = _parse_filter(cursor, _one(cursor))
    while _sees_join(cursor):
        natural = cursor.take("NATURAL")
        kind = _kind(cursor)
        right = _parse_filter(cursor, _one(cursor))
        using = _using(cursor) if cursor.take("USING") else ()
        on = cursor.term() if not using and cursor.take("ON") else None
        span = cursor.since(start)
        _check_condition(cursor, kind, right, span, has_condition=bool(natural or using or on is not None))
        source = JoinSource(source, right, kind, on, using, natural, span)
    return source


def _sees_join(cursor: Cursor) -> bool:
    return any(cursor.sees(word) for word in _JOINS)


def _kind(cursor: Cursor) -> str:
    kind = next((word for word in ("INNER", "LEFT", "RIGHT", "FULL", "CROSS") if cursor.take(word)), "INNER")
    if kind in ("LEFT", "RIGHT", "FULL"):
        cursor.take("OUTER")
    cursor.need("JOIN")
    return kind


def _check_condition(cursor: Cursor, kind: str, right: Source, span: Span, *, has_condition: bool) -> None:
    if kind == "CROSS" and has_condition:
        raise cursor.script.error("SQL_SYNTAX", "A CROSS JOIN has no condition.", span, remedy="Write JOIN ... ON.")
    if kind != "CROSS" and not has_condition and not isinstance(right, FunctionSource | LateralSource):
        remedy = "Add ON with the columns that must be equal, or write CROSS JOIN."
        raise cursor.script.error("SQL_SYNTAX", "The JOIN has no condition.", span, remedy=remedy)


def _using(cursor: Cursor) -> tuple[NameTerm, ...]:
    cursor.need_symbol("(")
    names = []
    while True:
        token = cursor.name("a column's name")
        names.append(NameTerm((token.text,), token.span))
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    return tuple(names)


def _parse_filter(cursor: Cursor, source: Source) -> Source:
    """The source with a WHERE in front of a JOIN, as rsqldb has it; any other WHERE is the query's."""
    place, start = cursor.place, cursor.here()
    if not cursor.take("WHERE"):
        return source
    where = cursor.term()
    if _sees_join(cursor):
        return FilteredSource(source, where, cursor.since(start))
    cursor.return_to(place)
    return source


def _one(cursor: Cursor) -> Source:
    start = cursor.here()
    if cursor.sees_symbol("("):
        return _parse_brackets(cursor)
    if cursor.take("TABLE"):
        cursor.need_symbol("(")
        window = _parse_table_call(cursor, start)
        cursor.need_symbol(")")
        return replace(window, span=cursor.since(start), alias=_alias(cursor))
    if cursor.sees("LATERAL") or cursor.sees("UNNEST"):
        return _lateral(cursor) or _function(cursor)
    following = cursor.peek(1)
    if following is not None and following.is_symbol("("):
        return replace(_parse_table_call(cursor, start), alias=_alias(cursor))
    return _table(cursor)


def _parse_table_call(cursor: Cursor, start: Span) -> WindowSource | PredictionSource | ChangelogSource:
    if any(map(cursor.sees, CHANGELOG_FUNCTIONS)):
        return parse_changelog(cursor, start)
    return parse_prediction(cursor, start) if cursor.sees("ML_PREDICT") else parse_window(cursor, start)


def _parse_brackets(cursor: Cursor) -> Source:
    start = cursor.here()
    if cursor.sees_query():
        cursor.need_symbol("(")
        query = cursor.query()
        cursor.need_symbol(")")
        span = cursor.since(start)
        return _with_match(cursor, SubquerySource(query, span, _alias(cursor)))
    cursor.need_symbol("(")
    source = parse_source(cursor)
    cursor.need_symbol(")")
    return source


def _lateral(cursor: Cursor) -> LateralSource | None:
    """LATERAL (SELECT ...) if that comes next, else None."""
    start, following = cursor.here(), cursor.peek(1)
    if following is None or not following.is_symbol("("):
        return None
    if not cursor.take("LATERAL"):
        return None
    cursor.need_symbol("(")
    query = cursor.query()
    cursor.need_symbol(")")
    span = cursor.since(start)
    return LateralSource(query, span, _alias(cursor))


def _function(cursor: Cursor) -> FunctionSource:
    """LATERAL TABLE(f(x)), UNNEST(array) [WITH ORDINALITY]."""
    start = cursor.here()
    if cursor.take("LATERAL"):
        cursor.need("TABLE")
        cursor.need_symbol("(")
        if sees_elsewhere(cursor):
            raise elsewhere(cursor, cursor.advance())
        call = _call(cursor, cursor.term())
        cursor.need_symbol(")")
        span = cursor.since(start)
        return FunctionSource(call, span, alias=_alias(cursor))
    name = cursor.advance()
    cursor.need_symbol("(")
    argument = cursor.term()
    cursor.need_symbol(")")
    with_ordinality = cursor.take("WITH", "ORDINALITY")
    span = cursor.since(start)
    return FunctionSource(CallTerm("UNNEST", (argument,), span, name.span), span, with_ordinality, _alias(cursor))


def _call(cursor: Cursor, term: Term) -> CallTerm:
    if not isinstance(term, CallTerm):
        raise cursor.script.error("SQL_SYNTAX", "LATERAL TABLE holds the call of a table function.", term.span)
    return term


def _table(cursor: Cursor) -> Source:
    table = parse_table(cursor)
    as_of: Term | None = None
    if cursor.take("FOR"):
        cursor.need("SYSTEM_TIME", "AS", "OF")
        as_of = cursor.term()
    if cursor.sees("TABLESAMPLE"):
        raise cursor.unsupported_error("TABLESAMPLE is not supported.")
    return _with_match(cursor, replace(table, as_of=as_of, alias=_alias(cursor)))


def _with_match(cursor: Cursor, table: TableSource | SubquerySource) -> Source:
    """The table, or the matches in it where MATCH_RECOGNIZE comes next."""
    if not cursor.sees("MATCH_RECOGNIZE"):
        return table
    matches = parse_match(cursor, table)
    return replace(matches, alias=_alias(cursor))


def _alias(cursor: Cursor) -> Alias:
    name = cursor.clear_name("an alias").text if cursor.take("AS") else bare_alias(cursor)
    if name is None or not cursor.take_symbol("("):
        return Alias(name)
    columns = [cursor.name("a column's name").text]
    while cursor.take_symbol(","):
        columns.append(cursor.name("a column's name").text)
    cursor.need_symbol(")")
    return Alias(name, tuple(columns))
