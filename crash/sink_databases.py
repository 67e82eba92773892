"""The databases that jobs write to: a file of SQLite, and PostgreSQL and MariaDB where the machine has a server."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

__all__ = ["MARIADB_SKIPPED", "POSTGRESQL_SKIPPED", "Rows", "SinkDatabase", "mariadb", "postgresql", "sqlite"]

POSTGRESQL_SKIPPED: Final = "postgresql_skipped"
"""The count that says that this machine has no PostgreSQL server."""

MARIADB_SKIPPED: Final = "mariadb_skipped"
"""The count that says that this machine has no MariaDB server."""

TABLES: Final = (
    "CREATE TABLE added (id INTEGER, word TEXT)",
    "CREATE TABLE newest (k INTEGER PRIMARY KEY, total INTEGER)",
)
"""Those of S12."""

Rows = Counter[tuple[Any, ...]]


class SinkDatabase(Protocol):
    """Where rows go."""

    @property
    def name(self) -> str:
        """Tells the job's tables apart."""
        ...

    @property
    def options(self) -> str:
        """Those of the tables in WITH."""
        ...

    def rows(self, table: str) -> Rows:
        """The rows of the table."""
        ...


@dataclass(frozen=True)
class _Sqlite:
    path: Path
    name: str = "sqlite"

    @property
    def options(self) -> str:
        return f"'url' = 'jdbc:sqlite:{self.path}'"

    def rows(self, table: str) -> Rows:
        with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as connection:
            return Counter(connection.execute(f"SELECT * FROM {table}").fetchall())


@dataclass(frozen=True)
class _Server:
    """A server that a driver of Python's database interface talks to."""

    name: str
    given: Mapping[str, str]
    connect: Callable[[Mapping[str, str]], Any]

    @property
    def options(self) -> str:
        return ", ".join(f"'{name}' = '{value}'" for name, value in self.given.items())

    def rows(self, table: str) -> Rows:
        return Counter(tuple(row) for row in self.run(f"SELECT * FROM {table}"))

    def run(self, statement: str) -> Sequence[Sequence[Any]]:
        with contextlib.closing(self.connect(self.given)) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            found: Sequence[Sequence[Any]] = cursor.fetchall() if cursor.description else []
            connection.commit()
            return found


def sqlite(directory: Path, tables: Sequence[str] = TABLES) -> SinkDatabase:
    """A file in the directory, with the tables that these statements make."""
    found = _Sqlite(directory / "sink.db")
    with contextlib.closing(sqlite3.connect(found.path)) as connection, connection:
        for statement in tables:
            connection.execute(statement)
    return found


@contextlib.contextmanager
def postgresql(tables: Sequence[str] = TABLES) -> Iterator[SinkDatabase | None]:
    """A server of its own with the tables that these statements make; None where the machine has none."""
    with _running("running_postgresql", _connect_to_postgresql, tables) as server:
        yield server


@contextlib.contextmanager
def mariadb(tables: Sequence[str] = TABLES) -> Iterator[SinkDatabase | None]:
    """The same of MariaDB."""
    with _running("running_mariadb", _connect_to_mariadb, tables) as server:
        yield server


@contextlib.contextmanager
def _running(
    start: str, connect: Callable[[Mapping[str, str]], Any], tables: Sequence[str]
) -> Iterator[SinkDatabase | None]:
    """The server that the tests start with this function of `database_servers`."""
    import pytest

    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    import database_servers

    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(getattr(database_servers, start)())
        except pytest.skip.Exception:
            yield None
            return
        found = _Server(server.kind, dict(server.options), connect)
        for statement in tables:
            found.run(statement)
        yield found


def _connect_to_postgresql(given: Mapping[str, str]) -> Any:
    import psycopg

    return psycopg.connect(given["url"].removeprefix("jdbc:"), user=given["username"], password=given["password"])


def _connect_to_mariadb(given: Mapping[str, str]) -> Any:
    import pymysql

    place = urlsplit(given["url"].removeprefix("jdbc:"))
    return pymysql.connect(
        host=place.hostname,
        port=place.port or 0,
        user=given["username"],
        password=given["password"],
        database=place.path.removeprefix("/"),
    )
