"""The page about differences from Flink: what it says of this side holds, example by example."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator

import pytest
from shop import SHOP
from test_sql_in_docs import DOCS, TABLES

from golden_rows import Golden, differences_from_flink, shown
from millstream.streams.errors import JobError
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.nodes import Node, Project, QueryPlan
from millstream.streams.plan.types import TypeKind
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.result_table import cell_text

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


def test_the_shell_shows_milliseconds() -> None:
    assert cell_text(datetime.datetime(2026, 1, 1)) == "2026-01-01 00:00:00.000"
    assert cell_text(datetime.datetime(2026, 1, 1, 0, 0, 0, 123_456)) == "2026-01-01 00:00:00.123456"
