"""Conditions of WHERE on a looked-up table become conditions of the lookup, where that says the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.streams.optimizer.lookup_pushdown import push_into_lookups
from millstream.streams.plan.expressions import conjuncts_of
from millstream.streams.plan.joins import LookupJoin
from millstream.streams.plan.nodes import Filter, Node, QueryPlan, inputs_of
from millstream.streams.spark.lookups.dimension_form import dimension_load
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.row_conditions import push_conditions
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE events (n BIGINT, k STRING, p AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = 'e');
CREATE TABLE things (id BIGINT, level INT, name STRING, twice AS level * 2)
  WITH ('connector' = 'filesystem', 'path' = '/p');
CREATE TABLE owners (id BIGINT, owner STRING) WITH ('connector' = 'filesystem', 'path' = '/o');
"""


def plan_of(select: str) -> Node:
    """The node of a SELECT, as it is rewritten."""
    plan = SqlSession().compile(TABLES + select)[-1]
    assert isinstance(plan, QueryPlan)
    return push_into_lookups(plan.query)


def nodes_of(node: Node) -> Iterator[Node]:
    yield node
    for below in inputs_of(node):
        yield from nodes_of(below)


def narrowed(where: str, *, kind: str = "JOIN", columns: str = "e.k, d.name") -> tuple[list[str], list[str]]:
    """The conditions of the lookup, and those of the filters that are left."""
    select = f"SELECT {columns} FROM events AS e {kind} things FOR SYSTEM_TIME AS OF e.p AS d ON e.n = d.id"
    node = plan_of(f"{select} WHERE {where}")
    (join,) = (one for one in nodes_of(node) if isinstance(one, LookupJoin))
    filters = [str(part) for one in nodes_of(node) if isinstance(one, Filter) for part in conjuncts_of(one.predicate)]
    return [str(one) for one in conjuncts_of(join.condition)], filters


@pytest.mark.parametrize(
    ("where", "moved", "left"),
    [
        ("d.level >= 2", [">=(level, 2)"], []),
        ("d.level >= 2 AND d.name <> e.k", [">=(level, 2)"], ["<>(name, k)"]),
        ("d.name IN ('a', 'b') AND d.level IS NOT NULL", ["IN(name, 'a', 'b')", "IS NOT NULL(level)"], []),
        # What reads the stream alone is asked before the lookup.
        ("e.k = 'x' AND 3 > d.level", [">(3, level)"], ["=(k, 'x')"]),
        ("d.level = 1 OR e.k = 'x'", [], ["OR(=(level, 1), =(k, 'x'))"]),
        ("UPPER(d.name) = 'A'", [], ["=(UPPER(name), 'A')"]),
    ],
)
def test_a_comparison_with_constants_moves_into_an_inner_lookup(where: str, moved: list[str], left: list[str]) -> None:
    assert narrowed(where) == (moved, left)


def test_nothing_moves_into_a_left_lookup() -> None:
    assert narrowed("d.level >= 2", kind="LEFT JOIN") == ([], [">=(level, 2)"])
    assert narrowed("d.level IS NULL", kind="LEFT JOIN") == ([], ["IS NULL(level)"])


def test_each_of_two_lookups_gets_its_own_conditions() -> None:
    select = """SELECT e.k, d.name, o.owner FROM events AS e
      JOIN things FOR SYSTEM_TIME AS OF e.p AS d ON e.n = d.id
      JOIN owners FOR SYSTEM_TIME AS OF e.p AS o ON e.n = o.id
      WHERE d.level = 1 AND o.owner = 'x' AND d.name < o.owner"""
    node = plan_of(select)
    joins = {one.table.name: one for one in nodes_of(node) if isinstance(one, LookupJoin)}
    assert str(joins["things"].condition) == "=(level, 1)"
    assert str(joins["owners"].condition) == "=(owner, 'x')"
    filters = [str(one.predicate) for one in nodes_of(node) if isinstance(one, Filter)]
    assert filters == ["<(name, owner)"]


def test_the_load_leaves_out_what_where_does_not_want(tmp_path: Path) -> None:
    select = "SELECT e.k, d.name FROM events AS e JOIN things FOR SYSTEM_TIME AS OF e.p AS d ON e.n = d.id"
    node = plan_of(select + " WHERE d.level >= 2 AND d.twice = 8")
    (join,) = (one for one in nodes_of(node) if isinstance(one, LookupJoin))
    filters, rest = push_conditions(conjuncts_of(join.condition), {"id": "id", "level": "level", "name": "name"})
    load = dimension_load(
        join, LookupSpec.of(join.table, {"path": str(tmp_path)}, ["id", "level", "name"], ["id"]), filters
    )
    assert [str(one) for one in load.filters] == [">=(level, 2)"]
    # A computed column is made where rows are joined.
    assert [str(one) for one in rest] == ["=(twice, 8)"]
