"""A job joins messages with a table of a real MariaDB server (Debian's package), and with what that table becomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from database_servers import DatabaseServer, running_mariadb
from interop.server import Server
from millstream.model.message import Message
from millstream.streams.connectors.jdbc.databases.database import DatabaseConnection, open_database

LIMIT_S = 600
"""How long a command takes at most that starts Spark."""

SCRIPT = """
CREATE TABLE logins (ip STRING, n INT, p AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = '{topic}');
CREATE TABLE assets (ip STRING, owner STRING, level INT) WITH (
  'connector' = 'jdbc', 'url' = '{url}', 'username' = '{username}', 'password' = '${env:SHOP_PASSWORD}',
  'table-name' = 'assets', 'lookup.cache' = 'FULL');
SELECT e.n, a.owner FROM logins AS e JOIN assets FOR SYSTEM_TIME AS OF e.p AS a ON e.ip = a.ip WHERE a.level >= 2;
"""


@pytest.fixture(scope="module")
def mariadb() -> Iterator[DatabaseServer]:
    with running_mariadb() as started:
        yield started


@pytest.fixture
def assets(mariadb: DatabaseServer) -> Iterator[DatabaseConnection]:
    with open_database(dict(mariadb.options)).connection(writes=True) as connection:
        connection.run("CREATE OR REPLACE TABLE assets (ip VARCHAR(40), owner VARCHAR(40), level INT)")
        yield connection


def millstream(*arguments: str, nameserver: str, home: Path, password: str) -> list[str]:
    """The lines that a command prints."""
    environment = {**os.environ, "MILLSTREAM_NAMESERVER": nameserver, "SHOP_PASSWORD": password}
    environment["MILLSTREAM_DIMENSIONS"] = str(home / "dimensions")
    command = [sys.executable, "-c", "from millstream.cli.main import run; run()", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert password not in done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(3 * LIMIT_S)
def test_messages_find_the_rows_of_a_database_as_it_is_when_they_are_loaded(
    server: Server, mariadb: DatabaseServer, assets: DatabaseConnection, tmp_path: Path
) -> None:
    topic = server.topic(queues=2)
    assets.run("INSERT INTO assets VALUES ('10.0.0.1', 'Ann', 2), ('10.0.0.1', 'Zoë', 3), ('10.0.0.2', 'Bob', 1)")
    with server.client() as client:
        for number in range(6):
            client.send(Message(topic, json.dumps({"ip": f"10.0.0.{number % 3 + 1}", "n": number}).encode()))
    script = SCRIPT.replace("{topic}", topic)
    for name in ("url", "username"):
        script = script.replace(f"{{{name}}}", mariadb.options[name])
    password = mariadb.options["password"]

    def command(*arguments: str) -> list[str]:
        return millstream(*arguments, nameserver=server.nameserver, home=tmp_path, password=password)

    def joined() -> set[tuple[int, str]]:
        rows = [json.loads(line)["row"] for line in command("sql", "--bounded", "-e", script, "-o", "json")]
        return {(row["n"], row["owner"]) for row in rows}

    assert joined() == {(0, "Ann"), (0, "Zoë"), (3, "Ann"), (3, "Zoë")}
    assets.run("DELETE FROM assets WHERE owner = 'Ann'")
    assets.run("INSERT INTO assets VALUES ('10.0.0.3', 'Cid', 9)")
    command("dim", "reload", "assets")
    assert joined() == {(0, "Zoë"), (3, "Zoë"), (2, "Cid"), (5, "Cid")}
    (shown,) = json.loads("\n".join(command("dim", "list", "-o", "json")))
    # Only the rows that WHERE wants are loaded.
    assert (shown["table"], shown["rows"], shown["version"]) == ("assets", 2, 2)
