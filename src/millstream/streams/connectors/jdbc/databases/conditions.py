"""Pushes conditions of a job down to a database, so that fewer rows are fetched.

A database compares by rules of its own (case, trailing blanks, fractions). So only such conditions are asked of it as
hold there for every row for which they hold in the job, which looks at all of them again.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from millstream.streams.connectors.jdbc.databases.database import Database
from millstream.streams.connectors.jdbc.databases.driver import StoredColumn
from millstream.streams.connectors.jdbc.databases.values import is_day, is_moment, is_text, is_whole
from millstream.streams.plan.evaluation import COMPARISONS, literal_last
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.types import INTEGER_KINDS, TypeKind

__all__ = ["sql_of_conditions"]

_NULL_IN_BOTH = (*INTEGER_KINDS, TypeKind.STRING, TypeKind.BOOLEAN, TypeKind.DATE)
"""A DECIMAL with too many digits is NULL in the job alone."""

_SqlCondition = tuple[str, tuple[int | str, ...]]


def sql_of_conditions(
    database: Database, stored: Mapping[str, StoredColumn], conditions: Sequence[Expression]
) -> _SqlCondition:  # fmt: skip
    """SQL with its values for those of the conditions that can be asked; blank where none can.

    `stored` are the columns of the table by their names in the job.
    """
    conditions_sql = [found for one in conditions if (found := _sql_of(database, stored, one)) is not None]
    return " AND ".join(f"({words})" for words, _ in conditions_sql), tuple(
        value for _, values in conditions_sql for value in values
    )


def _sql_of(database: Database, stored: Mapping[str, StoredColumn], condition: Expression) -> _SqlCondition | None:
    match literal_last(condition):
        case Call("AND", parts):
            both = [found for part in parts if (found := _sql_of(database, stored, part)) is not None]
            return _join_sql(" AND ", both) if both else None
        case Call("OR", parts):
            each = [_sql_of(database, stored, part) for part in parts]
            known = [found for found in each if found is not None]
            return _join_sql(" OR ", known) if len(known) == len(each) else None
        case Call("IS NOT NULL", (Column(name),)) if name in stored:
            return f"{database.name(stored[name].name)} IS NOT NULL", ()
        case Call("IS NULL", (Column(name, of),)) if name in stored and of.kind in _NULL_IN_BOTH:
            return f"{database.name(stored[name].name)} IS NULL", ()
        case Call("BETWEEN", (Column() as column, Literal() as low, Literal() as high)):
            ends = [
                _compare_sql(database, stored, ">=", column, low),
                _compare_sql(database, stored, "<=", column, high),
            ]
            known = [found for found in ends if found is not None]
            return _join_sql(" AND ", known) if known else None
        case Call("IN", (Column() as column, *options)):
            each = [
                _compare_sql(database, stored, "=", column, option) if isinstance(option, Literal) else None
                for option in options
            ]
            known = [found for found in each if found is not None]
            return _join_sql(" OR ", known) if known and len(known) == len(each) else None
        case Call(operator, (Column() as column, Literal() as literal)) if operator in COMPARISONS:
            return _compare_sql(database, stored, operator, column, literal)
        case _:
            return None


def _join_sql(word: str, parts: Sequence[_SqlCondition]) -> _SqlCondition:
    return word.join(f"({words})" for words, _ in parts), tuple(value for _, values in parts for value in values)


def _compare_sql(
    database: Database, stored: Mapping[str, StoredColumn], operator: str, column: Column, literal: Literal
) -> _SqlCondition | None:
    there = stored.get(column.name)
    if there is None:
        return None
    value = _value(database.address.kind, there.type, operator, column, literal)
    return None if value is None else (f"{database.name(there.name)} {operator} {database.mark}", (value,))


def _value(kind: str, there: str, operator: str, column: Column, literal: Literal) -> int | str | None:
    """The literal as a statement takes it; None where the database may say no and the job yes."""
    value = literal.value
    is_time = isinstance(value, datetime.datetime)
    match column.type.kind:
        case of if of in INTEGER_KINDS:
            return value if isinstance(value, int) and not isinstance(value, bool) and is_whole(there) else None
        case TypeKind.STRING:
            return value if isinstance(value, str) and operator == "=" and is_text(there) else None
        case TypeKind.DATE:
            known = isinstance(value, datetime.date) and not is_time and is_day(there) and kind != "sqlite"
            return str(value) if known else None
        case TypeKind.TIMESTAMP:
            # The job cuts off fractions of a second, so that only what is later stays later.
            known = is_time and operator in (">", ">=") and is_moment(there) and kind != "sqlite"
            return str(value) if known else None
        case _:
            return None
