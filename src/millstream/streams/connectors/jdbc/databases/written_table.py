"""Database tables: split for reading, and checked against the declaration for writing."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.streams.connectors.jdbc.databases.database import Database, DatabaseConnection
from millstream.streams.connectors.jdbc.databases.driver import StoredColumn
from millstream.streams.connectors.jdbc.databases.values import holds
from millstream.streams.errors import JobError
from millstream.streams.plan.types import Field

__all__ = ["TableParts", "WrittenTable", "find_columns"]


@dataclass(frozen=True, slots=True)
class TableParts:
    """`count` ranges of equal width from `lower` to `upper` of a column of whole numbers; blank: one part, all rows.

    The bounds cut, they leave nothing out: the first part has also what lies before them, and NULL, the last one what
    lies behind them.
    """

    column: str = ""
    count: int = 1
    lower: int = 0
    upper: int = 0

    @classmethod
    def of(cls, column: str, count: int, lower: int, upper: int) -> TableParts:
        """The parts; no more than there are whole numbers between the bounds. Raises ValueError where these are not."""
        if upper < lower:
            raise ValueError(f"{lower} is above {upper}")
        return cls(column, min(count, upper - lower + 1), lower, upper)

    def condition(self, database: Database, number: int) -> tuple[str, tuple[int, ...]]:
        """SQL that holds for the rows of a part, with its values; blank for all rows."""
        if self.count == 1:
            return "", ()
        name = database.name(self.column)
        start, end = self._start(number), self._start(number + 1)
        if number == 0:
            return f"({name} < {database.mark} OR {name} IS NULL)", (end,)
        if number == self.count - 1:
            return f"{name} >= {database.mark}", (start,)
        return f"{name} >= {database.mark} AND {name} < {database.mark}", (start, end)

    def _start(self, number: int) -> int:
        return self.lower + (self.upper - self.lower + 1) * number // self.count


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """The table `table` of a database, which a job calls `name`. With `keys` a row takes the place of the last one."""

    name: str
    table: str
    fields: tuple[Field, ...]
    keys: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are written, in order."""
        return tuple(field.name for field in self.fields)

    def check(self, connection: DatabaseConnection) -> None:
        """Nothing, where the job's rows have a place there. Raises JobError DATABASE_TABLE with the first misfit.

        Types of SQLite bind nobody and are not looked at.
        """
        database, stored = connection.database, connection.columns_of(self.table)
        found = find_columns(connection, f"The table {self.name} cannot be written", self.table, self.columns)
        for field in self.fields:
            column = found[field.name]
            if database.address.kind != "sqlite" and not holds(column.type, field.type):
                words = f"its column {column.name} is of type {column.type}, which holds no {field.type}"
                raise self._error(words, "Alter the column, or CAST the value and declare that type.")
        by_name = {_fold_case(column.name, connection): column for column in stored}
        ours = {_fold_case(name, connection) for name in self.columns}
        for name, column in by_name.items():
            if name not in ours and not column.fills:
                words = f"its column {column.name} is NOT NULL without a default, and the job gives it no value"
                raise self._error(words, "Declare the column in CREATE TABLE, or give it a default there.")
        self._check_key(connection)

    def _check_key(self, connection: DatabaseConnection) -> None:
        key = frozenset(_fold_case(name, connection) for name in self.keys)
        there = [
            frozenset(_fold_case(name, connection) for name in unique)
            for unique in connection.unique_keys_of(self.table)
        ]  # fmt: skip
        if key and key not in there:
            shown = ", ".join(self.keys)
            words = f"it has no unique key over ({shown}), the PRIMARY KEY of the job's table"
            raise self._error(words, f"Add one there: ALTER TABLE {self.table} ADD UNIQUE ({shown}).")

    def _error(self, words: str, remedy: str) -> JobError:
        return JobError("DATABASE_TABLE", f"The table {self.name} cannot be written: {words}.", remedy=remedy)


def find_columns(
    connection: DatabaseConnection, what: str, table: str, names: Sequence[str]
) -> dict[str, StoredColumn]:  # fmt: skip
    """The columns of those names. Raises JobError DATABASE_TABLE where one lacks, which says `what` cannot be done."""
    stored = connection.columns_of(table)
    if not stored:
        words = f"{what}: {connection.database.address} has no table {table}."
        remedy = _suggest_names(table, connection.tables()) or "Create it there, or correct 'table-name'."
        raise JobError("DATABASE_TABLE", words, remedy=remedy)
    by_name = {_fold_case(column.name, connection): column for column in stored}
    found = {}
    for name in names:
        column = by_name.get(_fold_case(name, connection))
        if column is None:
            known = [column.name for column in stored]
            remedy = _suggest_names(name, known) or f"Its columns are {', '.join(known)}."
            raise JobError("DATABASE_TABLE", f"{what}: {table} has no column {name}.", remedy=remedy)
        found[name] = column
    return found


def _suggest_names(name: str, known: Sequence[str]) -> str:
    """The known names that look like it, the nearest first; blank where none does."""
    by_folded = {one.lower(): one for one in known}
    meant = [by_folded[near] for near in difflib.get_close_matches(name.lower(), by_folded)]
    return f"Did you mean {' or '.join(meant)}?" if meant else ""


def _fold_case(name: str, connection: DatabaseConnection) -> str:
    return name.lower() if connection.database.folds_case else name
