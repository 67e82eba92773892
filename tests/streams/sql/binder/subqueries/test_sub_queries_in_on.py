"""Sub-queries in ON, compared with ANY and ALL, grouped and limited for the rows around them, as SQLite answers them."""

from __future__ import annotations

import random

import pytest
from asked_twice import asked_answer, planned_answer, random_tables
from hypothesis import given, settings
from hypothesis import strategies as st
from shop import shop_plan

from example_counts import scaled

_KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def _quantified(chance: random.Random) -> tuple[str, str]:
    """A comparison with ANY or ALL, and what it means by its definition: an OR or AND of the comparisons with all rows."""
    operator, kind = chance.choice(_OPERATORS), chance.choice(["ANY", "SOME", "ALL"])
    value, column = chance.choice(["a.k", "a.v", "2"]), chance.choice(["b.v", "b.id"])
    inner = f"FROM t2 AS b{chance.choice(['', ' WHERE b.k = a.k', ' WHERE b.v > 1'])}"
    one = f"{value} {operator} {column}"
    decided = "MIN({0}) = 0 THEN 0" if kind == "ALL" else "MAX({0}) = 1 THEN 1"
    end = int(kind == "ALL")
    cases = f"WHEN COUNT(*) = 0 THEN {end} WHEN {decided.format(one)} WHEN COUNT({one}) < COUNT(*) THEN NULL ELSE {end}"
    return f"{value} {operator} {kind} (SELECT {column} {inner})", f"(SELECT CASE {cases} END {inner})"


def _asked_about_one_side(chance: random.Random) -> str:
    alias, inner = chance.choice("ab"), chance.choice(["", " WHERE c.v > 1"])
    return chance.choice(
        [
            f"{alias}.k IN (SELECT c.v FROM t3 AS c{inner})",
            f"{alias}.k NOT IN (SELECT c.v FROM t3 AS c{inner})",
            f"EXISTS (SELECT 1 FROM t3 AS c WHERE c.k = {alias}.k)",
            f"NOT EXISTS (SELECT 1 FROM t3 AS c WHERE c.k = {alias}.v)",
            f"EXISTS (SELECT 1 FROM t3 AS c{inner})",
            f"{alias}.v = (SELECT MAX(c.v) FROM t3 AS c{inner})",
            f"a.k + b.k > (SELECT COUNT(*) FROM t3 AS c{inner})",
            f"{alias}.v < (SELECT COUNT(*) FROM t3 AS c WHERE c.k = {alias}.k)",
            f"(a.v = 2 OR {alias}.k IN (SELECT c.v FROM t3 AS c{inner}))",
        ]
    )


@settings(max_examples=scaled(120), deadline=None)
@given(st.integers(0, 2**32))
def test_any_and_all_compare_with_every_row_in_three_values(seed: int) -> None:
    chance = random.Random(seed)
    tables = random_tables(chance)
    ours, theirs = _quantified(chance)
    form = chance.choice(
        [
            "SELECT a.id FROM t1 AS a WHERE {0}",
            "SELECT a.id FROM t1 AS a WHERE NOT ({0})",
            "SELECT a.id FROM t1 AS a WHERE a.k = 1 OR {0}",
            "SELECT a.id, {0} AS x FROM t1 AS a",
        ]
    )
    assert planned_answer(form.format(ours), tables) == asked_answer(form.format(theirs), tables), form.format(ours)


@settings(max_examples=scaled(120), deadline=None)
@given(st.integers(0, 2**32))
def test_sub_queries_in_on_decide_which_rows_meet(seed: int) -> None:
    chance = random.Random(seed)
    tables = random_tables(chance)
    conditions = [_asked_about_one_side(chance), *chance.choice([[], ["a.k = b.k"], ["a.k = b.k", "b.v > 1"]])]
    chance.shuffle(conditions)
    query = f"SELECT a.id AS x, b.id AS y FROM t1 AS a {chance.choice(_KINDS)} t2 AS b ON {' AND '.join(conditions)}"
    assert planned_answer(query, tables) == asked_answer(query, tables), query


def test_a_sub_query_in_on_of_an_inner_join_may_ask_about_both_sides() -> None:
    tables = random_tables(random.Random(4))
    query = "SELECT a.id AS x, b.id AS y FROM t1 AS a JOIN t2 AS b ON EXISTS (SELECT 1 FROM t3 AS c WHERE c.k = a.k AND c.v = b.v)"
    assert planned_answer(query, tables) == asked_answer(query, tables)


@settings(max_examples=scaled(120), deadline=None)
@given(st.integers(0, 2**32))
def test_a_sub_query_in_on_of_an_outer_join_may_ask_about_both_sides(seed: int) -> None:
    chance = random.Random(seed)
    tables = random_tables(chance)
    about_both = chance.choice(
        [
            "EXISTS (SELECT 1 FROM t3 AS c WHERE c.k = a.k AND c.v = b.v)",
            "NOT EXISTS (SELECT 1 FROM t3 AS c WHERE c.k = a.k AND c.v = b.v)",
            "a.v IN (SELECT c.v FROM t3 AS c WHERE c.k = b.k)",
            "b.v NOT IN (SELECT c.v FROM t3 AS c WHERE c.k = a.k)",
            "a.v = (SELECT MAX(c.v) FROM t3 AS c WHERE c.k = b.k)",
            "(a.v = 2 OR EXISTS (SELECT 1 FROM t3 AS c WHERE c.k = a.k AND c.v = b.v))",
        ]
    )
    conditions = [about_both, *chance.choice([[], ["a.k = b.k"], ["b.v > 1"], [_asked_about_one_side(chance)]])]
    chance.shuffle(conditions)
    kind = chance.choice(["LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    query = f"SELECT a.id AS x, a.s, b.id AS y, b.s FROM t1 AS a {kind} t2 AS b ON {' AND '.join(conditions)}"
    assert planned_answer(query, tables) == asked_answer(query, tables), query


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("SELECT MAX(b.v) FROM t2 AS b WHERE b.k = a.k GROUP BY b.k", "SELECT MAX(b.v) FROM t2 AS b WHERE b.k = a.k"),
        ("SELECT COUNT(*) FROM t2 AS b WHERE b.k = a.k GROUP BY b.k", "SELECT NULLIF(COUNT(*), 0) FROM t2 AS b WHERE b.k = a.k"),
        ("SELECT MAX(b.v) FROM t2 AS b WHERE b.k = a.k HAVING COUNT(*) > 1",
         "SELECT CASE WHEN COUNT(*) > 1 THEN MAX(b.v) END FROM t2 AS b WHERE b.k = a.k"),
        ("SELECT DISTINCT b.v FROM t2 AS b WHERE b.k = a.k",
         "SELECT CASE WHEN COUNT(DISTINCT COALESCE(b.v, 9)) = 1 THEN MAX(b.v) END FROM t2 AS b WHERE b.k = a.k"),
        ("SELECT COUNT(*) FROM t2 AS b WHERE b.k = a.k GROUP BY b.v",
         "SELECT CASE WHEN COUNT(DISTINCT COALESCE(b.v, 9)) = 1 THEN COUNT(*) END FROM t2 AS b WHERE b.k = a.k"),
    ],
)  # fmt: skip
def test_a_grouping_for_each_row_around_it_is_a_value_where_it_gives_one_row(group: str, expected: str) -> None:
    for seed in range(8):
        tables = random_tables(random.Random(seed))
        query = "SELECT a.id, ({0}) AS x FROM t1 AS a"
        assert planned_answer(query.format(group), tables) == asked_answer(query.format(expected), tables)


def test_a_limit_without_an_order_takes_the_rows_that_come_first_for_each_row_around_it() -> None:
    ordered = "SELECT a.id AS x, b.id AS y FROM t1 AS a, LATERAL (SELECT id FROM t2 WHERE k = a.k{0} LIMIT 2) AS b"
    for seed in range(8):
        tables = random_tables(random.Random(seed))
        # The rows of these tables come by their id.
        assert planned_answer(ordered.format(""), tables) == planned_answer(ordered.format(" ORDER BY id"), tables)


def test_any_of_a_column_without_nulls_needs_its_least_or_greatest_value_alone() -> None:
    counted = "(SELECT item, COUNT(*) AS n FROM orders GROUP BY item) AS t"
    lines = shop_plan(f"SELECT id FROM orders WHERE amount > ALL (SELECT n FROM {counted})")
    assert sum("Join" in line for line in lines) == 1
    assert any("OR(IS NULL(EXPR$0), >(amount, EXPR$0))" in line for line in lines)
