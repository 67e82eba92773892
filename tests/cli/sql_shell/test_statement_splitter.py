"""Statements of a text that is still being typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.streams.sql_shell.line_editor import TypedText, split_statements

SET = "BEGIN STATEMENT SET; INSERT INTO a SELECT CASE WHEN x THEN 1 ELSE 2 END FROM t; INSERT INTO b SELECT 1; END"


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SHOW TABLES;", ("SHOW TABLES",)),
        ("SHOW TABLES; SELECT 1 ;\n", ("SHOW TABLES", "SELECT 1")),
        (";;", ()),
        ("SELECT ';';", ("SELECT ';'",)),
        ("SELECT 'it''s; fine';", ("SELECT 'it''s; fine'",)),
        ("SELECT `a;b`;", ("SELECT `a;b`",)),
        ("SELECT 1 -- not; here\n;", ("SELECT 1 -- not; here",)),
        ("SELECT /* not; here */ 1;", ("SELECT /* not; here */ 1",)),
        ("-- what it does\nSELECT 1;", ("-- what it does\nSELECT 1",)),
        (f"{SET};", (SET,)),
        (f"EXPLAIN {SET.removeprefix('BEGIN ').replace('SET;', 'SET BEGIN')};".replace("EXPLAIN ", "EXECUTE "),
         (f"EXECUTE {SET.removeprefix('BEGIN ').replace('SET;', 'SET BEGIN')}",)),
        ("SELECT CASE WHEN a THEN 1; SELECT 2;", ("SELECT CASE WHEN a THEN 1", "SELECT 2")),
    ],
)  # fmt: skip
def test_a_semicolon_ends_a_statement_unless_it_belongs_to_something_else(
    text: str, statements: tuple[str, ...]
) -> None:
    assert split_statements(text) == TypedText(statements, "")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SHOW TABLES; SELECT 1\n", " SELECT 1\n"),
        ("SELECT 'open;", "SELECT 'open;"),
        ("SELECT `open;", "SELECT `open;"),
        ("SELECT /* open;", "SELECT /* open;"),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;", "BEGIN STATEMENT SET; INSERT INTO a SELECT 1;"),
    ],
)
def test_what_has_no_end_yet_waits_for_more(text: str, rest: str) -> None:
    assert split_statements(text).rest == rest


def test_blanks_and_comments_alone_are_nothing_that_waits() -> None:
    assert split_statements("  -- later\n/* or never */\n") == TypedText((), "")


@given(st.text(alphabet="a;'`-/*\n SETBEGINCASE", max_size=40))
def test_lines_that_come_one_by_one_give_the_same_statements(text: str) -> None:
    found: list[str] = []
    above = ""
    for line in text.splitlines():
        typed = split_statements(f"{above}{line}\n")
        found += typed.statements
        above = typed.rest
    assert tuple(found) == split_statements(f"{text}\n").statements
