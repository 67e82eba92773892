"""The page about differences from Flink: what it says of this side holds, example by example."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator

import pytest
from playing import Player, inserted
from shop import SHOP
from test_sql_in_docs import DOCS, TABLES

from golden_rows import Golden, differences_from_flink, shown
from millstream.cli.sql_shell.cells import cell_text
from millstream.streams.errors import JobError
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.nodes import Node, Project, QueryPlan, inputs_of
from millstream.streams.plan.types import TypeKind
from millstream.streams.spark.operators.wirings import wiring_of
from millstream.streams.sql.compiler import SqlSession

S = 1_000_000
PAGE = DOCS / "differences-from-flink.md"
VALUES = differences_from_flink()
TIMED = """CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'rocketmq', 'topic' = 't');"""


def rows_of(section: str) -> Iterator[list[str]]:
    """The cells of the rows of a section's table."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    for line in re.findall(r"^\| (.+) \|$", text, re.MULTILINE)[1:]:
        yield [cell.strip() for cell in line.split(" | ")]


def bound(select: str, before: str = "") -> Node:
    plan = SqlSession().compile(before + select)[-1]
    assert isinstance(plan, QueryPlan)
    return plan.query


@pytest.mark.parametrize("row", VALUES, ids=lambda row: row.expression)
def test_an_expression_has_the_value_of_the_page(row: Golden) -> None:
    project = bound(f"SELECT {row.expression} AS x FROM t", TIMED)
    assert isinstance(project, Project)
    ((_, value),) = project.columns
    assert row.type in ("", str(value.type))
    try:
        evaluate = evaluator(value, {})
    except JobError:
        # Only Spark computes it; its tests look at all rows of the page.
        assert row.expression.split("(")[0].split("[")[0] in ("TO_TIMESTAMP", "ASCII", "MAP")
        return
    found = evaluate(())
    if found is not None and value.type.kind is TypeKind.TIMESTAMP:
        found = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=found)
    assert shown(found) == row.value


def test_a_type_is_the_one_of_the_page() -> None:
    rows = list(rows_of("Types of results"))
    assert len(rows) > 1
    for expression, here, _ in rows:
        (field,) = bound(f"SELECT {expression.strip('`')} AS x").schema.fields
        assert str(field.type) == here.strip("`")


def test_what_flink_refuses_is_taken() -> None:
    rows = list(rows_of("What Flink refuses"))
    assert len(rows) > 1
    for query, _ in rows:
        session = SqlSession()
        session.compile(SHOP + TABLES)
        assert session.compile(query.strip("`"))


def operator_of(select: str, kind: str) -> Player:
    """The operator of the first node of that kind."""
    node = bound(select, TIMED)
    while type(node).__name__ != kind:
        (node,) = inputs_of(node)
    wiring = wiring_of(node)
    assert wiring is not None
    assert [str(column) for column in wiring.inputs[0].columns][:1] == ["k"]
    return Player(wiring.make)


def test_lag_is_the_row_before_also_among_rows_of_one_time() -> None:
    over = operator_of("SELECT k, v, ts, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS x FROM t", "Over")
    over.turn(inserted(("a", 5, 1 * S, 5), ("a", 6, 1 * S, 6), ("a", 7, 1 * S, 7)))
    assert [row[-1] for _, row in over.end()] == [None, 5, 6]


def test_a_match_behind_a_try_that_never_ends_is_told_at_the_end() -> None:
    found = operator_of(
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS a, C.v AS c ONE ROW PER MATCH"
        " AFTER MATCH SKIP PAST LAST ROW PATTERN (A B* C) DEFINE C AS v = 2 * A.v)",
        "Match",
    )
    rows = [("a", 1 * S, 5), ("a", 2 * S, 6), ("a", 3 * S, 12)]
    assert found.turn(inserted(*rows), watermark_us=9 * S) == []
    assert [row[-2:] for _, row in found.end()] == [(6, 12)]


def test_the_shell_shows_milliseconds() -> None:
    assert cell_text(datetime.datetime(2026, 1, 1)) == "2026-01-01 00:00:00.000"
    assert cell_text(datetime.datetime(2026, 1, 1, 0, 0, 0, 123_456)) == "2026-01-01 00:00:00.123456"
