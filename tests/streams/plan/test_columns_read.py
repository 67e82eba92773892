"""What of its tables a plan reads."""

from __future__ import annotations

import pytest

from millstream.streams.plan.branch import columns_read
from millstream.streams.plan.nodes import JobPlan, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE events (
  kind INT, plain STRING,
  a ROW<x INT, y STRING, t TIMESTAMP(3), deep ROW<z INT, w INT>>,
  b ROW<x INT, t TIMESTAMP(3)>,
  at AS CASE kind WHEN 0 THEN a.t ELSE b.t END,
  WATERMARK FOR at AS at - INTERVAL '1' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'events');
CREATE TABLE more (x INT, a ROW<x INT, y STRING>) WITH ('connector' = 'rocketmq', 'topic' = 'more');
"""


def read(query: str) -> dict[str, list[str] | None]:
    """Of `events`: the physical columns by name, with the fields of those that are rows."""
    plan = SqlSession().compile(f"{TABLES} CREATE TABLE o WITH ('connector' = 'print') AS {query};")[-1]
    assert isinstance(plan, JobPlan)
    nodes = [sink.input for sink in plan.sinks]
    tables: list[Table] = [scan.table for node in nodes for scan in scans_of(node) if scan.table.name == "events"]
    physical = {column.name for column in tables[0].physical}
    return {
        name: [field.name for field in kind.fields] or None
        for name, kind in columns_read(tables[0], nodes).items()
        if name in physical
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT plain FROM events", {"plain": None}),
        ("SELECT a.y FROM events WHERE a.x > 1", {"a": ["x", "y"]}),
        ("SELECT a.deep.w FROM events", {"a": ["deep"]}),
        ("SELECT a, a.y AS y FROM events", {"a": ["x", "y", "t", "deep"]}),
        ("SELECT a FROM events WHERE b.x = 1", {"a": ["x", "y", "t", "deep"], "b": ["x"]}),
        ("SELECT a.y FROM events WHERE a IS NOT NULL", {"a": ["x", "y", "t", "deep"]}),
        ("SELECT at FROM events", {"kind": None, "a": ["t"], "b": ["t"]}),
        (
            "SELECT COUNT(*) AS n FROM events WHERE plain = 'p'",
            {"kind": None, "plain": None, "a": ["x", "y", "t", "deep"], "b": ["x", "t"]},
        ),
        (
            "SELECT CASE WHEN a.x = 1 THEN CAST(b.x AS STRING) ELSE a.y END AS c FROM events",
            {"a": ["x", "y"], "b": ["x"]},
        ),
        (
            "SELECT e.y AS y, m.a AS whole FROM (SELECT a.x AS x, a.y AS y FROM events) AS e JOIN more AS m ON e.x = m.x",
            {"kind": None, "a": ["x", "y", "t"], "b": ["t"]},
        ),
        ("SELECT a.x FROM events UNION ALL SELECT b.x FROM events", {"a": ["x"], "b": ["x"]}),
    ],
)
def test_of_a_row_only_the_fields_that_are_asked_for_are_read(
    query: str, expected: dict[str, list[str] | None]
) -> None:
    assert read(query) == expected
