"""PARTITION (column = value, ...) of INSERT and SHOW."""

from __future__ import annotations

from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.names import name_term
from millstream.streams.sql.parser.term_parser import parse_term
from millstream.streams.sql.syntax.statements import PartitionValue

__all__ = ["parse_partition"]


def parse_partition(cursor: Cursor) -> tuple[PartitionValue, ...]:
    """What stands behind PARTITION; a column without a value is dynamic."""
    cursor.need_symbol("(")
    values = []
    while True:
        column = name_term(cursor)
        values.append(PartitionValue(column, parse_term(cursor) if cursor.take_symbol("=") else None))
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    return tuple(values)
