"""${name} in a script becomes its value, wherever it stands, and errors still point at what was written."""

from __future__ import annotations

import pytest
from compiling import EVENTS, refused

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import QueryPlan, Scan, scans_of
from millstream.streams.sql.parser.lexer import tokenize
from millstream.streams.sql.session.compiler import SqlSession, TextResult
from millstream.streams.sql.shell.explain import explain_node
from millstream.streams.sql.syntax.script import Script, Variables


def scan(script: str, **given: str) -> Scan:
    plan = SqlSession(variables=given).compile(EVENTS + script)[-1]
    assert isinstance(plan, QueryPlan)
    return next(scans_of(plan.query))


def test_a_variable_of_the_session_is_replaced_in_strings_and_between_words() -> None:
    made = "CREATE TABLE t_${N} (a INT) WITH ('connector' = 'rocketmq', 'topic' = 'in-${N}-x'); SELECT a FROM t_${N}"
    assert scan(made, N="7").table.name == "t_7"
    assert scan(made, N="7").table.options["topic"] == "in-7-x"


def test_a_value_may_be_several_words_and_keeps_its_quotes_in_a_string() -> None:
    words = [token.text for token in tokenize(Script("${A} '${B}'"), Variables({"A": "x + 1", "B": "it's"}))]
    assert words == ["x", "+", "1", "it's"]


def test_set_counts_from_the_next_statement_on_and_over_what_the_session_gave() -> None:
    session = SqlSession(variables={"T": "nowhere"})
    session.compile(EVENTS + "SET 'var.T' = 'events'; SELECT host FROM ${T};")
    assert session.compile("SELECT host FROM ${T}")
    session.compile("RESET 'var.T'")
    with pytest.raises(SqlError, match="nowhere"):
        session.compile("SELECT host FROM ${T}")


def test_the_environment_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_TEST_TABLE", "events")
    assert scan("SELECT host FROM ${MILLSTREAM_TEST_TABLE}").table.name == "events"
    with pytest.raises(SqlError, match="other"):
        scan("SELECT host FROM ${MILLSTREAM_TEST_TABLE}", MILLSTREAM_TEST_TABLE="other")


def test_an_unknown_variable_is_shown_at_its_place_with_the_nearest_name() -> None:
    error = refused("SET 'var.TOPIC' = 'a';\nSELECT ${TOPIK} FROM events")
    assert (error.name, error.remedy) == ("SQL_VARIABLE", "Did you mean ${TOPIC}?")
    assert error.position is not None
    assert (error.position.column, error.position.length) == (8, 8)


def test_an_error_inside_of_a_value_points_at_the_variable_and_one_behind_it_at_its_own_place() -> None:
    error = refused("SET 'var.C' = 'a_long_name_of_a_column';\nSELECT ${C} FROM events")
    assert (error.name, error.position and (error.position.column, error.position.length)) == (
        "SQL_UNKNOWN_COLUMN",
        (8, 4),
    )
    error = refused("SET 'var.C' = 'host, host, host, host';\nSELECT ${C}, hots FROM events")
    assert (error.name, error.position and (error.position.column, error.position.length)) == (
        "SQL_UNKNOWN_COLUMN",
        (14, 4),
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("SET 'var.A' = '${A}'; SELECT 1", "no variable 'A'"),
        ("SELECT $x FROM events", "A variable is written"),
        ("SELECT ${env:HOME} FROM events", "value of a table's option"),
    ],
)
def test_what_is_no_variable_is_refused(script: str, said: str) -> None:
    assert said in f"{refused(script).message} {refused(script).remedy}"


def test_a_value_that_names_a_variable_is_refused_and_not_followed() -> None:
    with pytest.raises(SqlError, match="names another one"):
        SqlSession(variables={"A": "${A}"}).compile("SELECT ${A}")


def test_variables_in_comments_are_left_alone() -> None:
    plan = SqlSession().compile(EVENTS + "SELECT host -- ${nothing}\nFROM events /* ${none} */")[-1]
    assert isinstance(plan, QueryPlan)
    assert explain_node(plan.query)[0].startswith("Project [host]")


def test_set_lists_the_variables_too() -> None:
    listed = SqlSession().compile("SET 'var.A' = 'x'; SET")[-1]
    assert isinstance(listed, TextResult)
    assert ("var.A", "x") in listed.rows
