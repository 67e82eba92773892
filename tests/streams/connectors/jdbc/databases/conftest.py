"""The same contract over three databases: a file of SQLite, and real servers of PostgreSQL and MariaDB."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from database_servers import DatabaseServer, running_mariadb, running_postgresql
from millstream.streams.connectors.jdbc.databases.database import Database, DatabaseConnection, open_database


@dataclass
class Shop:
    """A database in which each test makes tables of its own. `options` are those of a table, but for its name."""

    kind: str
    options: dict[str, str]
    database: Database
    connection: DatabaseConnection

    def make(self, columns: str) -> str:
        """A new table with those columns; its name."""
        name = f"made_{uuid.uuid4().hex[:12]}"
        self.connection.run(f"CREATE TABLE {self.database.table(name)} ({columns})")
        return name

    def rows(self, table: str, order: str = "1") -> list[tuple[object, ...]]:
        return [
            tuple(row) for row in self.connection.rows(f"SELECT * FROM {self.database.table(table)} ORDER BY {order}")
        ]


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], DatabaseServer]]:
    """Starts each server once, when the first test wants it."""
    with ExitStack() as running:
        started: dict[str, DatabaseServer] = {}

        def server(kind: str) -> DatabaseServer:
            if kind not in started:
                start = running_postgresql if kind == "postgresql" else running_mariadb
                started[kind] = running.enter_context(start())
            return started[kind]

        yield server


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def shop(
    request: pytest.FixtureRequest, servers: Callable[[str], DatabaseServer], tmp_path: Path
) -> Iterator[Shop]:  # fmt: skip
    if request.param == "sqlite":
        file = tmp_path / "shop.db"
        file.touch()
        options = {"url": f"jdbc:sqlite:{file}"}
    else:
        options = dict(servers(request.param).options)
    database = open_database(options)
    with database.connection(writes=True) as connection:
        yield Shop(request.param, options, database, connection)
