"""PARTITION (column = value, ...) of INSERT and SHOW."""

from __future__ import annotations

from millstream.streams.sql.cursor import Cursor
from millstream.streams.sql.names import name_term
from millstream.streams.sql.statements import PartitionValue
from millstream.streams.sql.term_parser import parse_term

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
