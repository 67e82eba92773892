"""The order in which the tables of FROM are joined."""

from __future__ import annotations

import pytest

from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_node

TABLES = """
CREATE TABLE a (i BIGINT, x BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE b (j BIGINT, y BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE c (k BIGINT, z BIGINT) WITH ('connector' = 'datagen');
"""


def explained(query: str) -> tuple[list[str], list[str]]:
    """The joins and the tables of the plan, from the last join to the first."""
    plan = SqlSession().compile(f"{TABLES} {query};")[-1]
    assert isinstance(plan, QueryPlan)
    lines = [line.strip() for line in explain_node(plan.query)]
    joins = [line.partition(" [")[0] for line in lines if line.startswith("Join")]
    return joins, [line.split()[1] for line in lines if line.startswith("Scan")]


def test_a_table_that_only_a_later_one_is_equal_to_waits_for_that() -> None:
    joins, tables = explained("SELECT * FROM a, b, c WHERE a.i = c.k AND c.z = b.j AND a.x < b.y")
    assert joins == ["Join INNER keys=[z = j] condition=<(x, y)", "Join INNER keys=[i = k]"]
    assert tables == ["a", "c", "b"]


def test_columns_keep_the_order_of_from() -> None:
    plan = SqlSession().compile(f"{TABLES} SELECT * FROM a, b, c WHERE a.i = c.k AND c.z = b.j;")[-1]
    assert isinstance(plan, QueryPlan)
    assert plan.query.schema.names == ("i", "x", "j", "y", "k", "z")


@pytest.mark.parametrize(
    ("condition", "joins"),
    [
        ("a.i = b.j AND b.j = c.k", ["Join INNER keys=[j = k]", "Join INNER keys=[i = j]"]),
        ("a.i = b.j AND a.x = c.z", ["Join INNER keys=[x = z]", "Join INNER keys=[i = j]"]),
        ("b.j = c.k", ["Join INNER keys=[j = k]", "Join INNER keys=[]"]),
        ("a.x > 3", ["Join INNER keys=[]", "Join INNER keys=[]"]),
    ],
)
def test_the_order_of_from_stays_where_no_other_has_more_equations(condition: str, joins: list[str]) -> None:
    assert explained(f"SELECT * FROM a, b, c WHERE {condition}") == (joins, ["a", "b", "c"])


def test_computed_keys_of_two_joins_are_two_columns() -> None:
    joins, _ = explained("SELECT a.i FROM a, b, c WHERE a.i = b.j + 1 AND a.i = c.k - 1")
    assert joins == ["Join INNER keys=[i = right_key0]", "Join INNER keys=[i = right_key]"]
