"""Flink's own SQL client and its JDBC driver, unmodified, against the SQL gateway."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.driver import HEAP_MB, HERE, install, require
from interop.server import Server
from millstream.model.message import Message
from millstream.server.child import RoleProcess

FOLDER = HERE / "flink-sql"
LIMIT_S = 300
"""How long a client may take, the first queries of a gateway included."""

VISITS = """CREATE TABLE visits (page STRING, ms INT) WITH ('connector' = 'rocketmq', 'topic' = '{topic}',
 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"""
BODIES = [b'{"page": "/a", "ms": 1}', b'{"page": "/b", "ms": 2}', b'{"page": "/a", "ms": 4}']


def libraries(name: str) -> str:
    """The class path of a client, which Maven fetches where it is not there. Raises Missing."""
    require("java", "mvn")
    folder = FOLDER / name
    if not (folder / "target" / "lib").exists():
        install(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"], folder)
    return f"{folder / 'target' / 'lib'}/*"


@pytest.fixture(scope="module")
def gateway(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a gateway for the server."""
    folder = tmp_path_factory.mktemp("gateway")
    options = ("--port", "0", "--nameservers", server.nameserver)
    with RoleProcess("sql-gateway", folder / "data", options=options, log=folder / "log") as process:
        yield process.addresses["sql-gateway"]


@pytest.fixture
def visits(server: Server) -> str:
    """CREATE TABLE of a topic that has three visits in one queue."""
    topic = server.topic(queues=1)
    with server.client() as client:
        for body in BODIES:
            client.send(Message(topic, body))
    return VISITS.format(topic=topic)


def java(*words: str, **environment: str) -> str:
    """What a Java program prints."""
    command = ["java", f"-Xmx{HEAP_MB}m", *words]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def driver(gateway: str, *statements: str, most_rows: int = 1_000) -> list[str]:
    """The lines that the JDBC driver's program prints."""
    words = ("-cp", libraries("driver"), str(FOLDER / "driver" / "Query.java"), f"jdbc:flink://{gateway}")
    return java(*words, *statements, ROWS=str(most_rows)).splitlines()


def client(gateway: str, script: str, folder: Path) -> str:
    """What Flink's SQL client prints while it runs a script at the gateway."""
    file, configuration = folder / "script.sql", folder / "conf"
    file.write_text(script)
    configuration.mkdir()
    (configuration / "config.yaml").touch()
    words = ("org.apache.flink.table.client.SqlClient", "gateway", "--endpoint", gateway, "-f", str(file))
    history = ("-hist", str(folder / "history"))
    said = java("-cp", libraries("client"), *words, *history, FLINK_CONF_DIR=str(configuration))
    return re.sub(r"\x1b\[[0-9;]*m", "", said)


def test_the_jdbc_driver_reads_types_and_values(gateway: str) -> None:
    select = (
        "SELECT 1 AS a, 'x' AS b, CAST(1.5 AS DECIMAL(5, 2)) AS c, TIMESTAMP '2020-01-02 03:04:05.678' AS d, "
        "DATE '2020-01-01' AS e, TIME '10:11:12' AS f, CAST(NULL AS INT) AS g, TRUE AS h, CAST(1.25 AS DOUBLE) AS i, "
        "MAP['k', 1] AS j, CAST(12345678901234567890.123 AS DECIMAL(30, 3)) AS k"
    )
    assert driver(gateway, select)[1:] == [
        "a INT NOT NULL\tb STRING NOT NULL\tc DECIMAL(5, 2) NOT NULL\td TIMESTAMP(3) NOT NULL\te DATE NOT NULL\t"
        "f TIME(0)\tg INT\th BOOLEAN NOT NULL\ti DOUBLE NOT NULL\tj MAP<STRING NOT NULL, INT>\t"
        "k DECIMAL(30, 3) NOT NULL",
        "1\tx\t1.50\t2020-01-02 03:04:05.678\t2020-01-01\t10:11:12\tnull\ttrue\t1.25\t{k=1}\t12345678901234567890.123",
        "done",
    ]


def test_the_jdbc_driver_reads_a_stream_and_tells_of_catalogs_and_tables(gateway: str, visits: str) -> None:
    statements = ("catalogs", "schemas", visits, "SHOW TABLES", "SELECT page, ms FROM visits", "SHOW TABLES")
    lines = driver(gateway, *statements, most_rows=3)
    answers = {statement: lines.index(f"> {statement.splitlines()[0]}") for statement in statements}
    assert lines[answers["catalogs"] + 2] == "default_catalog"
    assert lines[answers["schemas"] + 2] == "default_database\tdefault_catalog"
    assert lines[answers["SHOW TABLES"] + 2] == "visits"
    first = answers["SELECT page, ms FROM visits"]
    assert lines[first + 1 : first + 5] == ["page STRING\tms INT", "/a\t1", "/b\t2", "/a\t4"]
    # The driver closed an endless query, and the session goes on.
    assert lines[-2:] == ["visits", "done"]


def test_the_sql_client_runs_a_script(gateway: str, visits: str, tmp_path: Path) -> None:
    script = f"""
SET 'sql-client.execution.result-mode' = 'tableau';
{visits};
CREATE TABLE out (page STRING) WITH ('connector' = 'print');
DESCRIBE visits;
SET 'execution.runtime-mode' = 'batch';
SELECT page, COUNT(*) AS n, SUM(ms) AS ms FROM visits GROUP BY page ORDER BY page;
BEGIN STATEMENT SET;
INSERT INTO out SELECT page FROM visits;
INSERT INTO out SELECT page FROM visits WHERE ms > 1;
END;
EXECUTE STATEMENT SET BEGIN
INSERT INTO out SELECT page FROM visits;
END;
SHOW JOBS;
"""
    said = client(gateway, script, tmp_path)
    assert "ERROR" not in said
    assert "| page | STRING | TRUE |" in said
    assert "|   /a | 2 |  5 |\n|   /b | 1 |  2 |" in said
    jobs = re.findall(r"Job ID: ([0-9a-f]{32})", said)
    assert len(jobs) == 2
    table = said[said.index("job id") :]
    assert all(job in table for job in jobs)


def test_the_sql_client_shows_where_a_statement_is_wrong(gateway: str, visits: str, tmp_path: Path) -> None:
    said = client(gateway, f"{visits};\nSELECT pag FROM visits;\n", tmp_path)
    assert 'There is no column "pag"' in said


def dbt() -> Path:
    """The program dbt with its Flink adapter, which is installed where it is not there. Raises Missing.

    The adapter wants a dbt that Python 3.10 is the last one for.
    """
    require("python3.10")
    folder = FOLDER / "dbt" / "target"
    program = folder / "bin" / "dbt"
    if not program.exists():
        install(["python3.10", "-m", "venv", str(folder)], FOLDER)
        install([str(folder / "bin" / "pip"), "install", "-q", "dbt-flink-adapter==1.3.11"], FOLDER)
    return program


def test_dbt_makes_views_tables_and_seeds_and_tests_them(
    gateway: str, server: Server, visits: str, tmp_path: Path
) -> None:
    program, project = dbt(), tmp_path / "project"
    shutil.copytree(FOLDER / "dbt", project, ignore=shutil.ignore_patterns("target"))
    (tmp_path / ".dbt").mkdir()
    host, _, port = gateway.rpartition(":")
    topic = re.search(r"'topic' = '(\w+)'", visits)
    names = server.topic(queues=1)
    assert topic is not None
    environment = {
        **os.environ,
        **{"HOME": str(tmp_path), "DBT_PROFILES_DIR": str(project), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
        **{"GATEWAY_HOST": host, "GATEWAY_PORT": port, "VISITS": topic[1], "NAMES": names},
    }
    for command, passed in (("run", 2), ("seed", 1), ("test", 1)):
        done = subprocess.run(
            [str(program), command], cwd=project, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert f"PASS={passed} WARN=0 ERROR=0" in done.stdout, done.stdout + done.stderr
    table = (
        f"CREATE TABLE names (id DECIMAL, name STRING) WITH ('connector' = 'rocketmq', 'topic' = '{names}', "
        "'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"
    )
    rows = driver(gateway, table, "SELECT id, name FROM names", most_rows=2)
    assert rows[-3:] == ["1\tone", "2\ttwo", "done"]


def test_a_super_user_logs_in_by_the_headers_that_flinks_clients_send(
    server: Server, tmp_path: Path, visits: str
) -> None:
    environment = {"MILLSTREAM_ACCESS_KEY": "root", "MILLSTREAM_SECRET_KEY": "secret-of-root"}
    options = ("--port", "0", "--nameservers", server.nameserver, "--set", "access.enabled=true", "--set", "warm=false")
    with RoleProcess(
        "sql-gateway", tmp_path / "data", options=options, log=tmp_path / "log", environment=environment
    ) as process:
        gateway = process.addresses["sql-gateway"]
        login = base64.b64encode(b"root:secret-of-root").decode()
        words = ("-cp", libraries("driver"), str(FOLDER / "driver" / "Query.java"), f"jdbc:flink://{gateway}")
        said = java(*words, "catalogs", FLINK_REST_CLIENT_HEADERS=f"Authorization:Basic {login}")
        assert "default_catalog" in said
        with pytest.raises(AssertionError, match="Log in as a super user"):
            java(*words, "catalogs")
