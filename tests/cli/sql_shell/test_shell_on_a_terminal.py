"""The real shell on a terminal: keys, Ctrl-C, history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal, terminal

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"
PROMPT = "millstream> "
VISITS = """CREATE TABLE visits (page STRING)
WITH ('connector' = 'rocketmq', 'topic' = 'visits');
"""


@pytest.fixture(scope="module")
def nameserver(server: ServerProcess) -> str:
    """Of a server whose topic `visits` holds three messages."""
    with BlockingClient(server.addresses.nameserver) as client:
        client.create_topic(TopicConfig("visits", read_queues=1, write_queues=1))
        client.send_many([Message("visits", f'{{"page": "/{page}"}}'.encode()) for page in "aab"])
    return server.addresses.nameserver


@pytest.fixture
def shell(nameserver: str, tmp_path: Path) -> Iterator[Terminal]:
    with terminal("sql", "--nameserver", nameserver, home=tmp_path) as opened:
        opened.wait_for(PROMPT)
        yield opened


def test_ctrl_c_ends_what_is_shown_or_typed_and_never_the_shell(shell: Terminal) -> None:
    shell.type("SHOW VIE\t;\n")
    shell.wait_for("There are no views.")
    shell.wait_for(PROMPT)
    shell.type("SELECT what is half typed")
    shell.wait_for("half typed")
    shell.wait_for("^C", pressing=CTRL_C)
    shell.wait_for(PROMPT)
    shell.type("PRINT 'visits' FROM BEGINNING;\n")
    shell.wait_for('{"page": "/b"}')
    shell.type(CTRL_C)
    shell.wait_for(PROMPT)
    shell.type("SHOW JOBS;\n")
    shell.wait_for("There are no jobs in this shell.")
    # The end of a line that nobody reads yet is nobody's.
    shell.wait_for(PROMPT)
    shell.type(CTRL_D)
    assert shell.exit_code() == 0


def test_a_typo_is_shown_with_its_place_and_the_next_shell_remembers_the_statement(
    shell: Terminal, nameserver: str, tmp_path: Path
) -> None:
    shell.type("DESCRIBE\n  nothing;\n")
    shown = shell.wait_for("[MS-7003]")
    assert "line 2, column 3" in shown
    shell.wait_for("^^^^^^^")
    shell.type("QUIT\n")
    assert shell.exit_code() == 0
    with terminal("sql", "--nameserver", nameserver, home=tmp_path) as again:
        again.wait_for(PROMPT)
        again.type(UP + "\n")
        assert "line 2, column 3" in again.wait_for("[MS-7003]")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_ctrl_c_ends_the_waiting_for_spark_and_a_live_table_and_the_next_statement_runs(shell: Terminal) -> None:
    shell.type(VISITS)
    shell.wait_for("Table visits is created.")
    shell.type("SELECT page, COUNT(*) AS n FROM visits GROUP BY page;\n")
    shell.wait_for("Ctrl-C to stop waiting")
    shell.type(CTRL_C)
    shell.wait_for("stopped by Ctrl-C")
    shell.type("SET 'execution.runtime-mode' = 'batch';\n")
    shell.wait_for("is batch")
    shell.type("SELECT page, COUNT(*) AS n FROM visits GROUP BY page;\n")
    assert "/a    2" in shell.wait_for("ended: rows in 3")
    shell.type("RESET;\n")
    shell.wait_for("defaults")
    shell.type("SELECT page, COUNT(*) AS n FROM visits GROUP BY page;\n")
    shell.wait_for("running: rows in")
    shell.type(CTRL_C)
    shell.wait_for("stopped by Ctrl-C")
    shell.type("SHOW VIEWS;\n")
    shell.wait_for("There are no views.")
    shell.type("QUIT\n")
    assert shell.exit_code() == 0
