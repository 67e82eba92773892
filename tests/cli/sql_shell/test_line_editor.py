"""History and completion of the prompt."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from millstream.cli.streams.sql_shell.line_editor import (
    MAX_STATEMENT_CHARACTERS,
    MAX_STATEMENTS,
    History,
    endings,
    history_path,
)


def test_the_history_outlives_the_shell_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "new" / "sql_history"
    History(path).add("SELECT 1\nFROM t;")
    assert History(path).statements == ["SELECT 1\nFROM t;"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_statement_that_is_repeated_too_long_or_has_a_secret_is_not_kept(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    assert history.add("SHOW TABLES;")
    assert not history.add("SHOW TABLES;")
    assert not history.add("x" * (MAX_STATEMENT_CHARACTERS + 1))
    assert not history.add("CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'hush');")
    assert "hush" not in (tmp_path / "h").read_text()


def test_the_oldest_statements_go(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_text("".join(f'"{number}"\n' for number in range(MAX_STATEMENTS)))
    history = History(path)
    history.add("new")
    assert (len(history.statements), history.statements[0], history.statements[-1]) == (MAX_STATEMENTS, "1", "new")


def test_a_damaged_or_closed_history_costs_only_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_text('"good"\nnot json\n{"a": 1}\n')
    assert History(path).statements == ["good"]
    closed = tmp_path / "file"
    closed.write_text("")
    assert History(closed / "h").add("SELECT 1;")


def test_the_history_lies_where_the_user_keeps_state() -> None:
    assert history_path({"XDG_STATE_HOME": "/state"}) == Path("/state/millstream/sql_history")
    assert history_path({}) == Path.home() / ".local/state/millstream/sql_history"


@pytest.mark.parametrize(
    ("line", "begin", "start", "words", "wanted"),
    [
        ("SEL", 0, 0, ["SELECT"], ["SELECT"]),
        # The editor takes - and . for the ends of words, SQL's names of settings do not.
        ("SET 'execution.runtime-mo", 23, 5, ["execution.runtime-mode"], ["mode"]),
        ("SET 'table.exec", 11, 5, ["table.exec.state.ttl", "Table.exec.x"], ["exec.state.ttl", "exec.x"]),
        ("INSERT ", 0, 7, ["INTO"], ["INSERT INTO"]),
        ("open string", 5, -3, ["x"], []),
    ],
)
def test_completions_stand_in_the_place_of_what_the_editor_takes_for_the_word(
    line: str, begin: int, start: int, words: list[str], wanted: list[str]
) -> None:
    assert endings(line, begin, start, words) == wanted
