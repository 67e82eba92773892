"""ALTER TABLE, VIEW, FUNCTION, CATALOG and DATABASE."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.names import name_list, name_term, parse_path
from millstream.streams.sql.parser.query_parser import parse_select
from millstream.streams.sql.parser.session_parser import parse_create_function
from millstream.streams.sql.parser.table_parser import TableElements, parse_options
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.statements import AlterSpace, AlterView, CreateFunction
from millstream.streams.sql.syntax.tables import (
    AddColumns,
    AlterTable,
    ColumnChange,
    DropColumns,
    DropPart,
    RenameColumn,
    RenameTable,
    ResetOptions,
    SetOptions,
    TableChange,
)

__all__ = ["parse_alter"]


_MADE_ANEW = {
    "MODEL": "Write CREATE OR REPLACE MODEL.",
    "MATERIALIZED": "Use INSERT INTO a table that keeps its rows.",
}


def parse_alter(cursor: Cursor) -> AlterTable | AlterView | AlterSpace | CreateFunction:
    """The ALTER statement that comes next."""
    start = cursor.here()
    cursor.need("ALTER")
    if cursor.take("TABLE"):
        if_exists = cursor.take("IF", "EXISTS")
        path = parse_path(cursor, "a table's name")
        return AlterTable(path, _change(cursor), if_exists, cursor.since(start))
    if cursor.take("VIEW"):
        return _view(cursor, start)
    for kind in ("CATALOG", "DATABASE"):
        if cursor.take(kind):
            return _space(cursor, kind, start)
    if cursor.sees("FUNCTION") or cursor.sees("TEMPORARY"):
        return _function(cursor, start)
    for kind, remedy in _MADE_ANEW.items():
        if cursor.sees(kind):
            raise cursor.unsupported_error(f"ALTER {kind} is not supported.", remedy=remedy)
    raise cursor.expected_error("TABLE, VIEW, FUNCTION, CATALOG or DATABASE")


def _space(cursor: Cursor, kind: str, start: Span) -> AlterSpace:
    path = parse_path(cursor, f"a {kind.lower()}'s name", 1 if kind == "CATALOG" else 2)
    here = cursor.here()
    if cursor.take("SET"):
        return AlterSpace(kind, path, cursor.since(start), options=parse_options(cursor))
    if kind == "CATALOG" and cursor.take("RESET"):
        return AlterSpace(kind, path, cursor.since(start), reset=_reset(cursor, here).keys)
    if kind == "CATALOG" and cursor.take("COMMENT"):
        comment = cursor.string().text
        return AlterSpace(kind, path, cursor.since(start), comment=comment)
    raise cursor.expected_error("SET, RESET or COMMENT" if kind == "CATALOG" else "SET")


def _function(cursor: Cursor, start: Span) -> CreateFunction:
    temporary = cursor.take("TEMPORARY")
    system = temporary and cursor.take("SYSTEM")
    cursor.need("FUNCTION")
    if_exists = cursor.take("IF", "EXISTS")
    made = parse_create_function(cursor, start, temporary=temporary, system=system, replaces=True)
    return replace(made, alters=True, if_exists=if_exists)


def _view(cursor: Cursor, start: Span) -> AlterView:
    path = parse_path(cursor, "a view's name")
    span = cursor.since(start)
    if cursor.take("RENAME"):
        cursor.need("TO")
        return AlterView(path, parse_path(cursor, "a view's name"), None, "", span)
    cursor.need("AS")
    before = cursor.here()
    query = parse_select(cursor)
    after = cursor.since(before)
    return AlterView(path, None, query, cursor.script.text[after.start : after.end], span)


def _change(cursor: Cursor) -> TableChange:
    start = cursor.here()
    if cursor.take("SET"):
        return SetOptions(parse_options(cursor))
    if cursor.take("RESET"):
        return _reset(cursor, start)
    if cursor.take("RENAME"):
        if cursor.take("TO"):
            return RenameTable(parse_path(cursor, "a table's name"))
        old = name_term(cursor)
        cursor.need("TO")
        return RenameColumn(old, name_term(cursor))
    for word in ("ADD", "MODIFY", "DROP"):
        if cursor.take(word):
            for part in ("PARTITION", "DISTRIBUTION"):
                if cursor.sees(part):
                    message = f"ALTER TABLE ... {word} {part} is not supported."
                    raise cursor.unsupported_error(message, cursor.since(start), remedy="Create the table anew.")
            return _drop(cursor) if word == "DROP" else _add(cursor, start, modifies=word == "MODIFY")
    raise cursor.expected_error("SET, RESET, RENAME, ADD, MODIFY or DROP")


def _reset(cursor: Cursor, start: Span) -> ResetOptions:
    cursor.need_symbol("(")
    keys = [cursor.string("an option's 'name'").text]
    while cursor.take_symbol(","):
        keys.append(cursor.string("an option's 'name'").text)
    cursor.need_symbol(")")
    return ResetOptions(tuple(keys), cursor.since(start))


def _add(cursor: Cursor, start: Span, *, modifies: bool) -> AddColumns:
    elements = TableElements()
    changes: list[ColumnChange] = []
    bracketed = cursor.take_symbol("(")
    if not bracketed:
        cursor.take("COLUMN")
    while True:
        column = elements.read(cursor)
        if column is not None:
            if cursor.take("FIRST"):
                changes.append(ColumnChange(column, "FIRST"))
            elif cursor.take("AFTER"):
                changes.append(ColumnChange(column, "AFTER", name_term(cursor)))
            else:
                changes.append(ColumnChange(column))
        if not bracketed or not cursor.take_symbol(","):
            break
    if bracketed:
        cursor.need_symbol(")")
    if elements.unique_keys or elements.is_dimension:
        raise cursor.unsupported_error("Only columns, WATERMARK and PRIMARY KEY are added.", cursor.since(start))
    return AddColumns(tuple(changes), elements.watermark, elements.primary_key, modifies, cursor.since(start))


def _drop(cursor: Cursor) -> TableChange:
    start = cursor.here()
    if cursor.take("WATERMARK"):
        return DropPart("WATERMARK", start)
    if cursor.take("PRIMARY", "KEY"):
        return DropPart("PRIMARY KEY", cursor.since(start))
    if cursor.take("CONSTRAINT"):
        cursor.name("a constraint's name")
        return DropPart("PRIMARY KEY", cursor.since(start))
    if cursor.sees_symbol("("):
        return DropColumns(name_list(cursor))
    cursor.take("COLUMN")
    return DropColumns((name_term(cursor),))
