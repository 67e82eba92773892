"""The databases that jobs write to: a file of SQLite, and a PostgreSQL server where the machine has one."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = ["POSTGRESQL_SKIPPED", "Rows", "SinkDatabase", "postgresql", "sqlite"]

POSTGRESQL_SKIPPED: Final = "postgresql_skipped"
"""The count that says that this machine has no PostgreSQL server."""

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
class _Postgresql:
    given: dict[str, str]
    name: str = "postgresql"

    @property
    def options(self) -> str:
        return ", ".join(f"'{name}' = '{value}'" for name, value in self.given.items())

    def rows(self, table: str) -> Rows:
        return Counter(self.run(f"SELECT * FROM {table}"))

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        url = self.given["url"].removeprefix("jdbc:")
        with psycopg.connect(url, user=self.given["username"], password=self.given["password"]) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


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
    import pytest

    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from database_servers import running_postgresql

    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgresql())
        except pytest.skip.Exception:
            yield None
            return
        found = _Postgresql(dict(server.options))
        for statement in tables:
            found.run(statement)
        yield found
