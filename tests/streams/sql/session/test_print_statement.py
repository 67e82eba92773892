"""PRINT 'topic': the messages of a topic as they come."""

from __future__ import annotations

import pytest
from compiling import refused

from millstream.streams.sql.session.compiler import PrintCommand, SqlSession


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("PRINT 'visits'", PrintCommand("visits")),
        ("print 'visits' from beginning;", PrintCommand("visits", from_beginning=True)),
        ("PRINT 'visits' LIMIT 3", PrintCommand("visits", limit=3)),
        ("PRINT 'visits' FROM BEGINNING LIMIT 3", PrintCommand("visits", from_beginning=True, limit=3)),
    ],
)
def test_print_names_a_topic_where_to_begin_and_how_much_to_show(script: str, command: PrintCommand) -> None:
    assert SqlSession().compile(script) == [command]


@pytest.mark.parametrize(
    "script", ["PRINT visits", "PRINT", "PRINT 't' LIMIT 0", "PRINT 't' LIMIT 1.5", "PRINT 't' FROM 3"]
)
def test_anything_else_behind_print_is_refused_at_its_place(script: str) -> None:
    error = refused(script)
    assert error.name == "SQL_SYNTAX"
    assert error.position is not None
