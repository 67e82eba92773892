"""An error that quotes a line of a script shows no secret that stands there, and still points to its place."""

from __future__ import annotations

import pytest
from compiling import error_of

from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.errors import SourcePosition, SqlError

SECRET = "hunter22"


def shown(line: str, place: str = "?") -> str:
    """How an error shows a line, pointing to `place` in it."""
    column = line.index(place) + 1
    error = SqlError("SQL_SYNTAX", "Wrong.", position=SourcePosition(1, column, len(place)), script=line, remedy="")
    return str(error).partition("\n")[2]


@pytest.mark.parametrize(
    "options",
    [
        "'password' = 'hunter22'",
        "'password'='it''s hunter22'",
        "'Secret-Key' = 'hunter22', 'access-key' = 'ann'",
        "'connector.password' /* mine */ = 'hunter22'",
        "'password' 'hunter22'",
        "'password' = hunter22",
        "'password' = 'hunter22",
        "`password` = 'hunter22'",
        "password = 'hunter22'",
        "'header.Authorization' = 'hunter22'",
        "'avro-confluent.basic-auth.user-info' = 'ann:hunter22'",
        "'token' = 'hunter22', 'api-key' = 'hunter22'",
        "'url' = 'jdbc:postgresql://ann:hunter22@db/shop'",
        "'url' = 'jdbc:mysql://db/shop?user=ann&password=hunter22'",
        "'hosts' = 'http://ann:hunter22@one;http://ann:hunter22@two'",
    ],
)
def test_no_secret_of_the_line_is_shown_and_the_caret_stays_under_its_place(options: str) -> None:
    for line in (f"CREATE ? TABLE t WITH ({options})", f"  ({options}, ?)"):
        text, _, caret = shown(line).partition("\n")
        assert SECRET not in text
        assert "***" in text
        if "?, " not in text and text.count("?") == 1:
            assert text[caret.index("^")] == "?"


def test_the_value_is_hidden_where_it_stands_on_another_line_than_its_name() -> None:
    script = "WITH (\n  'password' = -- of ann\n    'hunter22', ?)"
    error = SqlError("SQL_SYNTAX", "Wrong.", position=SourcePosition(3, 17), script=script)
    assert SECRET not in str(error)
    assert str(error).splitlines()[1:] == ["      '******', ?)", "  " + " " * 14 + "^"]


def test_a_caret_under_a_secret_is_as_long_as_what_is_shown() -> None:
    assert shown(f"'password' = '{SECRET}'", SECRET).splitlines() == [
        "  'password' = '******'",
        "                ^^^^^^",
    ]


def test_other_values_and_references_to_the_environment_are_shown_as_they_are() -> None:
    for line in (
        "SELECT token, ? FROM t WHERE secret > 5",
        "'password' = '${env:PASSWORD}', ?",
        "'topic' = 'passwords', ?",
        "'url' = 'jdbc:postgresql://db/shop', ?",
        "SELECT 'a@b:c' AS mail, ?",
    ):
        assert shown(line).partition("\n")[0] == f"  {line}"


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' 'hunter22')",
        "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'hunter22' 'x' = 'y')",
        "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'hunter22', 'nonsense' = 'y')",
        "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'hunter22', 'password' = 'hunter22')",
        "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 'hunter22",
        "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = hunter22)",
        "CREATE TABLE t (a NT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://ann:hunter22@h/d')",
        "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://ann:hunter22@h/d', 'nonsense' = 't')",
        "CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq', 'topic' = 't', 'secret-key' = 'hunter22')",
        "CREATE CATALOG c WITH ('type' = 'jdbc', 'password' = 'hunter22')",
    ],
)
def test_what_the_compiler_refuses_tells_no_secret(script: str) -> None:
    error = error_of(script)
    assert error is not None
    assert SECRET not in str(error)
    assert SECRET not in error.message


def test_every_option_that_is_a_secret_is_hidden() -> None:
    names = {option.name for connector in CONNECTORS.values() for option in connector.options if option.secret}
    for name in {*names, "connector.password", "secretKey"}:
        assert SECRET not in shown(f"'{name.replace('#', 'x')}' = '{SECRET}', ?"), name
