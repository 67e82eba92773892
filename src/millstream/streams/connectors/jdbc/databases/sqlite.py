"""SQLite: a file that this process opens itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote

from millstream.streams.connectors.jdbc.databases.address import DatabaseAddress
from millstream.streams.connectors.jdbc.databases.driver import Put
from millstream.streams.connectors.jdbc.databases.failure import Cause

__all__ = ["SqliteDriver"]

_PRIMARY_CODE = 0xFF
"""The lower byte of an extended result code (https://sqlite.org/rescode.html)."""

_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)
_REFUSED = (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY)
_ROW = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)


class SqliteDriver:
    """Opens the file of an address; one that is not there is a mistake, and nothing makes it."""

    mark = "?"
    quote = '"'
    folds_case = True
    errors: tuple[type[Exception], ...] = (sqlite3.Error, OverflowError)
    begin = "BEGIN IMMEDIATE"
    lock_clause = ""
    put_rows = 100

    def __init__(self, address: DatabaseAddress, timeout_s: float) -> None:
        self._file = address.name
        self._timeout_s = timeout_s

    def connect(self, *, writes: bool) -> sqlite3.Connection:
        """A connection that waits for the locks of others as long as one may take to connect."""
        url = f"file:{quote(self._file)}?mode={'rw' if writes else 'ro'}"
        return sqlite3.connect(
            url, timeout=self._timeout_s, isolation_level=None, uri=True, check_same_thread=False
        )  # fmt: skip

    def chunks(
        self, connection: sqlite3.Connection, query: str, values: Sequence[object], chunk_rows: int
    ) -> Iterator[list[Sequence[object]]]:
        """The rows as the file gives them."""
        with closing(connection.cursor()) as cursor:
            cursor.execute(query, tuple(values))
            while rows := cursor.fetchmany(chunk_rows):
                yield rows

    def put(self, connection: Any, target: Put, rows: Sequence[Sequence[Any]]) -> None:
        """By the statement."""
        with closing(connection.cursor()) as cursor:
            cursor.executemany(target.statement, rows)

    def cause(self, error: Exception) -> Cause:
        """By the result code; Python's own errors, and those of statements, have none that helps."""
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
        if code in _PASSING:
            return Cause.PASSING
        if code in _REFUSED:
            return Cause.REFUSED
        if code in _ROW or isinstance(error, sqlite3.InterfaceError | sqlite3.DataError | OverflowError):
            return Cause.ROW
        words = str(error)
        return Cause.SCHEMA if words.startswith("no such") or " has no column " in words else Cause.OTHER

    def columns_query(self, parts: Sequence[str]) -> tuple[str, tuple[object, ...]]:
        """Of PRAGMA table_info; a whole number as the primary key fills itself."""
        query = (
            'SELECT name, lower(type), "notnull" = 0 AND pk = 0, '
            "dflt_value IS NOT NULL OR \"notnull\" = 0 OR (pk > 0 AND lower(type) = 'integer') "
            "FROM pragma_table_info(?, ?)"
        )
        return query, (parts[-1], parts[-2] if len(parts) > 1 else "main")

    def tables_query(self) -> str:
        """Of the file's own table of what is in it."""
        return "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"

    def unique_query(self, parts: Sequence[str]) -> tuple[str, tuple[object, ...]]:
        """The primary key and the unique indexes that hold for all rows."""
        schema = parts[-2] if len(parts) > 1 else "main"
        query = (
            "SELECT '', name FROM pragma_table_info(?, ?) WHERE pk > 0 UNION ALL "
            "SELECT l.name, i.name FROM pragma_index_list(?, ?) AS l, pragma_index_info(l.name, ?) AS i "
            'WHERE l."unique" = 1 AND l.partial = 0'
        )
        return query, (parts[-1], schema, parts[-1], schema, schema)

    def engine_query(self, parts: Sequence[str]) -> tuple[str, tuple[object, ...]] | None:
        """All tables have transactions."""
        return None

    def replacing(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        """SQLite's ON CONFLICT."""
        others = [name for name in columns if name not in keys]
        if not others:
            return f" ON CONFLICT ({', '.join(keys)}) DO NOTHING"
        return f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET " + ", ".join(f"{x} = excluded.{x}" for x in others)

    def text_type(self, characters: int) -> str:
        """Texts have no length."""
        return "TEXT"
