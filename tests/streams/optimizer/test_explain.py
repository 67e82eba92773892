"""EXPLAIN of jobs whose conditions sources judge."""

from __future__ import annotations

from branch_answers import TABLES

from millstream.streams.sql.session.compiler import SqlSession, TextResult


def told(statement: str, stage: str = "always") -> list[str]:
    """What EXPLAIN says behind the plan."""
    text = f"SET 'millstream.rules.stage' = '{stage}'; {TABLES} EXPLAIN {statement}"
    result = SqlSession().compile(text)[-1]
    assert isinstance(result, TextResult)
    lines = [line for (line,) in result.rows]
    first = next((place for place, line in enumerate(lines) if line.startswith(("Source stage", "Merged"))), len(lines))
    return lines[first:]


def test_atoms_are_told_by_field_with_those_that_conditions_share() -> None:
    lines = told(
        "STATEMENT SET BEGIN INSERT INTO alerts SELECT 'r1', host, port FROM events WHERE image LIKE '%cmd%' AND port = 1;"
        "INSERT INTO alerts SELECT 'r2', host, port FROM events WHERE image LIKE '%cmd%' AND REGEXP(host, 'a+'); END"
    )
    assert lines == [
        "Merged: 2 INSERTs into alerts of one shape run as one",
        "Source stage of events: judges 2 conditions: 3 atoms, 1 shared",
        "  image: 1 atom (patterns 1)",
        "  port: 1 atom (sets 1)",
        "  host: 1 atom (patterns 1)",
        "  rows that no condition wants stay in it",
    ]


def test_what_stays_a_filter_is_told_with_its_reason() -> None:
    lines = told("SELECT host FROM events WHERE port = 1 AND CHAR_LENGTH(host) > 3")
    assert lines[0] == "Source stage of events: judges 1 condition: 1 atom, 0 shared"
    assert lines[-1].startswith("  stays a filter: >(CHAR_LENGTH(host), 3): ")


def test_a_stage_that_would_cost_more_says_so() -> None:
    lines = told("SELECT host FROM events WHERE port = 1", stage="auto")
    assert lines[0] == "Source stage of events: does not judge 1 condition: 1 atom, 0 shared"
    assert lines[1].startswith("  because it would cost about ")


def test_a_plan_without_conditions_says_nothing_of_stages() -> None:
    assert told("SELECT host FROM events") == []
