"""Real database servers for tests, each in a directory of its own, as a user that is not root."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

USER = "keeper"
PASSWORD = "hush-4711"
DATABASE = "shop"
START_LIMIT_S = 60.0
_MARIADB_SCRIPTS = Path("/usr/share/mysql")
_POSTGRESQL_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@dataclass(frozen=True)
class DatabaseServer:
    """A running server; `options` are those of a table, but for its name."""

    kind: str
    options: Mapping[str, str]


@contextmanager
def running_postgresql() -> Iterator[DatabaseServer]:
    """A PostgreSQL server. Skips the test, with the reason, where there is none."""
    postgres = shutil.which("postgres") or next((str(path / "postgres") for path in _POSTGRESQL_PROGRAMS[-1:]), None)
    if postgres is None:
        pytest.skip("no PostgreSQL server: Debian has it in the package postgresql")
    port = free_port()
    with _directory("postgres") as (directory, user):
        password = directory / "password"
        password.write_text(PASSWORD)
        os.chmod(password, 0o644)
        data = directory / "data"
        initdb = [str(Path(postgres).with_name("initdb")), "-D", str(data), "-U", USER, "-A", "scram-sha-256"]
        _run([*initdb, f"--pwfile={password}", "-E", "UTF8", "--locale=C", "--no-sync"], user)
        command = [
            postgres,
            "-D",
            str(data),
            "-k",
            str(directory),
            "-p",
            str(port),
            "-h",
            "127.0.0.1",
            "-c",
            "fsync=off",
        ]
        with _server(command, user, directory):
            import psycopg

            def ready() -> None:
                given: dict[str, Any] = {
                    "host": "127.0.0.1",
                    "port": port,
                    "user": USER,
                    "password": PASSWORD,
                    "dbname": "postgres",
                }
                with psycopg.connect(**given, autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {DATABASE}")

            _wait(ready, psycopg.Error)
            url = f"jdbc:postgresql://127.0.0.1:{port}/{DATABASE}"
            yield DatabaseServer("postgresql", {"url": url, "username": USER, "password": PASSWORD})


@contextmanager
def running_mariadb() -> Iterator[DatabaseServer]:
    """A MariaDB server. Skips the test, with the reason, where there is none."""
    mariadbd = shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin")
    scripts = [_MARIADB_SCRIPTS / name for name in ("mysql_system_tables.sql", "mysql_system_tables_data.sql")]
    if mariadbd is None or not all(script.exists() for script in scripts):
        pytest.skip("no MariaDB server: Debian has it in the package mariadb-server")
    port = free_port()
    with _directory("nobody") as (directory, user):
        data = directory / "data"
        data.mkdir()
        if user is not None:
            shutil.chown(data, user)
        # What mariadb-install-db does, which wants a program that not every package brings.
        system = ["CREATE DATABASE IF NOT EXISTS mysql;", "USE mysql;", "SET @auth_root_socket = NULL;"]
        system += [script.read_text() for script in scripts]
        basics = [mariadbd, "--no-defaults", f"--datadir={data}", f"--tmpdir={data}", "--innodb-buffer-pool-size=32M"]
        _run([*basics, "--bootstrap"], user, "\n".join(system))
        first = directory / "first.sql"
        first.write_text(
            f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;\n"
            f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        os.chmod(first, 0o644)
        files = [f"--socket={directory}/socket", f"--pid-file={directory}/pid", f"--init-file={first}"]
        network = [f"--port={port}", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0"]
        with _server([*basics, *files, *network], user, directory):
            import pymysql

            def ready() -> None:
                pymysql.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD, database=DATABASE).close()

            _wait(ready, pymysql.err.Error)
            url = f"jdbc:mysql://127.0.0.1:{port}/{DATABASE}"
            yield DatabaseServer("mysql", {"url": url, "username": USER, "password": PASSWORD})


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def _directory(owner: str) -> Iterator[tuple[Path, str | None]]:
    """A directory that a server may write, and the user to run it as; None: the one that runs the tests."""
    user = owner if getpass.getuser() == "root" else None
    # Not below the directory of the run, which only its own user may enter.
    directory = Path(tempfile.mkdtemp(prefix="millstream-database-"))
    try:
        if user is not None:
            shutil.chown(directory, user)
        yield directory, user
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(command: Sequence[str], user: str | None, given: str = "") -> None:
    done = subprocess.run(command, user=user, cwd="/", input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or done.stdout


@contextmanager
def _server(command: Sequence[str], user: str | None, directory: Path) -> Iterator[None]:
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(command, user=user, cwd="/", stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            server.terminate()
            server.wait(START_LIMIT_S)


def _wait(ready: Callable[[], None], error: type[Exception]) -> None:
    until_s = time.monotonic() + START_LIMIT_S
    while True:
        try:
            return ready()
        except error:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)
