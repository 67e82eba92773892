"""A database and its connections: chunked queries, statements, transactions, table metadata.

Names of tables and columns as SQL of a database has them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from millstream.streams.connectors.jdbc.databases.address import DatabaseAddress
from millstream.streams.connectors.jdbc.databases.driver import Driver, Put, StoredColumn
from millstream.streams.connectors.jdbc.databases.failure import DatabaseFailure, without_secret
from millstream.streams.connectors.jdbc.databases.mysql import MysqlDriver
from millstream.streams.connectors.jdbc.databases.postgresql import PostgresqlDriver
from millstream.streams.connectors.jdbc.databases.sqlite import SqliteDriver

__all__ = [
    "CHUNK_ROWS",
    "CONNECT_TIMEOUT_S",
    "Database",
    "DatabaseConnection",
    "database_at",
    "open_database",
    "quote_name",
    "table_parts",
]

_WHOLE = re.compile(r'(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`)(?:\.(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`))*')
_PART = re.compile(r'"((?:[^"]|"")+)"|`((?:[^`]|``)+)`')


def table_parts(text: str) -> tuple[str, ...]:
    """The parts of a table's name: schema.table, or "a.b"."c" where a dot belongs to a name."""
    if _WHOLE.fullmatch(text):
        return tuple(
            found[1].replace('""', '"') if found[1] is not None else found[2].replace("``", "`")
            for found in _PART.finditer(text)
        )
    return tuple(text.split("."))


def quote_name(parts: Sequence[str], quote: str, mark: str) -> str:
    """The name in quotes. Drivers that replace their marks by themselves want each % twice."""
    written = ".".join(f"{quote}{part.replace(quote, quote * 2)}{quote}" for part in parts)
    return written.replace("%", "%%") if mark == "%s" else written


CHUNK_ROWS: Final = 5_000
"""Rows of a query that a process fetches at once by default."""

CONNECT_TIMEOUT_S: Final = 10.0
"""How long one attempt to connect may take, and how long SQLite waits for a lock."""

Values = Sequence[Any]


def open_database(options: Mapping[str, str], *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> Database:
    """The database of a table's options (`url`, `username`, `password`); nothing is connected yet.

    Raises JobError DATABASE_URL, EXTRA_MISSING.
    """
    return database_at(
        DatabaseAddress.of(options.get("url", ""), options.get("username", ""), options.get("password", "")),
        connect_timeout_s=connect_timeout_s,
    )


def database_at(address: DatabaseAddress, *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> Database:
    """The database at that place; nothing is connected yet. Raises JobError DATABASE_URL, EXTRA_MISSING."""
    return Database(address, _driver(address, connect_timeout_s))


def _driver(address: DatabaseAddress, timeout_s: float) -> Driver:
    match address.kind:
        case "sqlite":
            return SqliteDriver(address, timeout_s)
        case "mysql":
            return MysqlDriver(address, timeout_s)
        case _:
            return PostgresqlDriver(address, timeout_s)


class Database:
    """One database. Its calls raise DatabaseFailure, whose words never have the password.

    In SQL of its own a caller writes `mark` for a value, names by `name` and `table`, and with the mark %s a % of its
    own twice.
    """

    def __init__(self, address: DatabaseAddress, driver: Driver) -> None:
        self.address = address
        self.mark = driver.mark
        self.folds_case = driver.folds_case
        self._driver = driver

    def name(self, column: str) -> str:
        """The name of a column in SQL."""
        return quote_name((column,), self._driver.quote, self.mark)

    def table(self, text: str) -> str:
        """The name of a table in SQL, with its schema where `text` has one."""
        return quote_name(table_parts(text), self._driver.quote, self.mark)

    def select(self, table: str, columns: Sequence[str], condition: str = "") -> str:
        """A query for those columns; of none, for a 1 per row. `condition` is SQL."""
        wanted = ", ".join(map(self.name, columns)) or "1"
        where = f" WHERE {condition}" if condition else ""
        return f"SELECT {wanted} FROM {self.table(table)}{where}"

    def insert(self, table: str, columns: Sequence[str], keys: Sequence[str] = ()) -> str:
        """A statement that adds a row, or with `keys` puts it in the place of the one that has them."""
        return self.put_into(table, columns, keys).statement

    def put_into(self, table: str, columns: Sequence[str], keys: Sequence[str] = ()) -> Put:
        """Where `DatabaseConnection.put` writes: rows are added, or with `keys` replace those that have them."""
        names = tuple(self.name(column) for column in columns)
        conflict = self._driver.replacing(names, [self.name(key) for key in keys]) if keys else ""
        return Put(self.table(table), names, self.mark, conflict)

    @property
    def put_rows(self) -> int:
        """How many rows are best written at once."""
        return self._driver.put_rows

    def delete(self, table: str, keys: Sequence[str]) -> str:
        """A statement that removes the rows with those keys."""
        equal = " AND ".join(f"{self.name(key)} = {self.mark}" for key in keys)
        return f"DELETE FROM {self.table(table)} WHERE {equal}"

    @property
    def lock_clause(self) -> str:
        """What stands behind a SELECT whose rows nobody else may change until the transaction ends."""
        return self._driver.lock_clause

    def text_type(self, characters: int) -> str:
        """The type of texts of so many characters that can be a key."""
        return self._driver.text_type(characters)

    def rows_in_chunks(self, query: str, values: Values = (), chunk_rows: int = CHUNK_ROWS) -> Iterator[list[Values]]:
        """The rows of a query over a connection of its own, at most `chunk_rows` at once in memory.

        The values of rows are those of the driver; `values.found_row` makes them alike.
        """
        with self.connection() as connection:
            yield from connection.rows_in_chunks(query, values, chunk_rows)

    @contextmanager
    def connection(self, *, writes: bool = False) -> Iterator[DatabaseConnection]:
        """A connection that is closed behind the block."""
        connection = self.connect(writes=writes)
        try:
            yield connection
        finally:
            connection.close()

    def connect(self, *, writes: bool = False) -> DatabaseConnection:
        """A connection; only one that `writes` may change something."""
        with self.failures():
            return DatabaseConnection(self, self._driver, self._driver.connect(writes=writes))

    @contextmanager
    def failures(self) -> Iterator[None]:
        """The driver's errors as DatabaseFailure."""
        try:
            yield
        except self._driver.errors as error:
            words = without_secret(f"{self.address}: {error}", self.address.password)
            raise DatabaseFailure(self._driver.cause(error), words) from None


class DatabaseConnection:
    """One connection, for one thread at a time. Without a transaction each statement counts at once."""

    def __init__(self, database: Database, driver: Driver, raw: Any) -> None:
        self.database = database
        self._driver = driver
        self._raw = raw

    def rows(self, query: str, values: Values = ()) -> list[Values]:
        """All rows of a query."""
        with self.database.failures(), contextlib.closing(self._raw.cursor()) as cursor:
            cursor.execute(query, tuple(values))
            return list(cursor.fetchall())

    def rows_in_chunks(self, query: str, values: Values = (), chunk_rows: int = CHUNK_ROWS) -> Iterator[list[Values]]:
        """The rows of a query, at most `chunk_rows` at once in memory; nothing else is asked until they are taken."""
        with self.database.failures():
            yield from self._driver.chunks(self._raw, query, values, chunk_rows)

    def run(self, statement: str, values: Values = ()) -> None:
        """One statement."""
        with self.database.failures(), contextlib.closing(self._raw.cursor()) as cursor:
            cursor.execute(statement, tuple(values))

    def run_each(self, statement: str, rows: Sequence[Values]) -> None:
        """The statement with the values of each row, in as few journeys as the driver can."""
        with self.database.failures(), contextlib.closing(self._raw.cursor()) as cursor:
            cursor.executemany(statement, rows)

    def put(self, target: Put, rows: Sequence[Values]) -> None:
        """Write rows within a transaction, in the fastest way that does what the statement of `target` does."""
        with self.database.failures():
            self._driver.put(self._raw, target, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements of the block count, or none: what it raises takes them back."""
        self.run(self._driver.begin)
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            # Where the line is broken the server takes them back by itself.
            with contextlib.suppress(DatabaseFailure):
                self.run("ROLLBACK")
            raise

    def columns_of(self, table: str) -> tuple[StoredColumn, ...]:
        """The columns of a table, in order; none where there is no such table."""
        query, values = self._driver.columns_query(table_parts(table))
        return tuple(
            StoredColumn(_text(name), _text(kind), bool(nullable), bool(fills))
            for name, kind, nullable, fills in self.rows(query, values)
        )

    def tables(self) -> list[str]:
        """The tables and views that a name without a schema can mean."""
        return [_text(row[0]) for row in self.rows(self._driver.tables_query())]

    def unique_keys_of(self, table: str) -> list[frozenset[str]]:
        """The columns of each unique key that holds for all rows of a table."""
        query, values = self._driver.unique_query(table_parts(table))
        keys: dict[Any, set[str]] = {}
        for index, column in self.rows(query, values):
            keys.setdefault(index, set()).add(_text(column))
        return [frozenset(columns) for columns in keys.values()]

    def has_transactions(self, table: str) -> bool:
        """Whether rows of the table can be taken back."""
        query = self._driver.engine_query(table_parts(table))
        return query is None or all(bool(row[0]) for row in self.rows(*query))

    def close(self) -> None:
        """End it; a line that is broken already is no error."""
        with contextlib.suppress(*self._driver.errors):
            self._raw.close()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
