"""Statements that change or show the session."""

from __future__ import annotations

import pytest
from compiling import EVENTS, compiled, refused

from millstream.streams.errors import SqlError
from millstream.streams.sql.compiler import SqlSession, TextResult


def text(script: str) -> TextResult:
    result = compiled(script)[-1]
    assert isinstance(result, TextResult)
    return result


def test_describe_shows_columns_types_and_event_time() -> None:
    rows = text("DESCRIBE events").rows
    assert ("id", "BIGINT", "") in rows
    assert ("ts", "TIMESTAMP(3)", "event time") in rows


def test_show_lists_tables_views_and_functions() -> None:
    assert text("CREATE VIEW v AS SELECT id FROM events; SHOW TABLES").rows == (("events",), ("v",))
    assert text("CREATE VIEW v AS SELECT id FROM events; SHOW VIEWS").rows == (("v",),)
    assert ("REGEXP",) in text("SHOW FUNCTIONS").rows


def test_explain_shows_the_plan_and_starts_nothing() -> None:
    assert text("EXPLAIN SELECT host FROM events").rows == (
        ("Project [host]",),
        ("  Scan events (rocketmq) columns=[host STRING]",),
    )


def test_a_dropped_table_is_gone_and_can_be_made_again() -> None:
    assert refused("DROP TABLE events; SELECT host FROM events").name == "SQL_UNKNOWN_TABLE"
    assert text(f"DROP TABLE events; {EVENTS}").title == "Table events is created."
    assert text("DROP TABLE IF EXISTS nothing").title == "There is no table nothing."


def test_set_without_a_value_lists_the_settings() -> None:
    rows = dict(text("SET 'execution.runtime-mode' = 'batch'; SET").rows)
    assert rows["execution.runtime-mode"] == "batch"
    assert (
        dict(text("SET 'execution.runtime-mode' = 'batch'; RESET; SET").rows)["execution.runtime-mode"] == "streaming"
    )


def test_a_session_keeps_its_tables_but_not_those_of_a_script_that_failed() -> None:
    session = SqlSession()
    session.compile(EVENTS)
    with pytest.raises(SqlError):
        session.compile("CREATE TABLE other (a INT) WITH ('connector' = 'print'); SELECT nothing FROM events")
    with pytest.raises(SqlError, match="no table or view"):
        session.compile("DESCRIBE other")
    assert session.compile("SELECT host FROM events")


def test_if_not_exists_leaves_the_table_that_is_there() -> None:
    again = EVENTS.replace("CREATE TABLE events", "CREATE TABLE IF NOT EXISTS events")
    assert text(again).title == "events exists already."
    assert refused(EVENTS).name == "SQL_TABLE_EXISTS"
