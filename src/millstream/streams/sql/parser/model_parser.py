"""CREATE MODEL as Flink has it."""

from __future__ import annotations

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.table_parser import parse_options
from millstream.streams.sql.parser.type_parser import parse_type
from millstream.streams.sql.syntax.names import parse_path
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.statements import CreateModel
from millstream.streams.sql.syntax.tables import ColumnDefinition

__all__ = ["parse_create_model"]


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
