"""ORDER BY that names the output: aliases inside of expressions, names of several inputs, and values of a DISTINCT."""

from __future__ import annotations

import random

import pytest
from asked_twice import asked_answer, planned_answer, random_tables
from compiling import refused
from shop import shop_plan

REPORTS = {
    "a rollup in the order of its levels": (
        "SELECT SUM(v) AS total, k, s, GROUPING(k) + GROUPING(s) AS lochierarchy FROM t1 GROUP BY ROLLUP(k, s)"
        " ORDER BY lochierarchy DESC, CASE WHEN lochierarchy = 0 THEN k END, k, s LIMIT 4",
        # SQLite has no ROLLUP.
        "SELECT total, k, s, lochierarchy FROM (SELECT SUM(v) AS total, k, s, 0 AS lochierarchy FROM t1 GROUP BY k, s"
        " UNION ALL SELECT SUM(v), k, NULL, 1 FROM t1 GROUP BY k UNION ALL SELECT SUM(v), NULL, NULL, 2 FROM t1 HAVING COUNT(*) > 0)"
        " ORDER BY lochierarchy DESC, CASE WHEN lochierarchy = 0 THEN k END, k, s LIMIT 4",
    ),
    "an output that is in several inputs": (
        "SELECT a.id, b.v AS w FROM t1 a, t2 b, t3 c WHERE a.k = b.k AND b.k = c.k ORDER BY id DESC, w, c.id LIMIT 3",
        "SELECT a.id, b.v AS w FROM t1 a, t2 b, t3 c WHERE a.k = b.k AND b.k = c.k ORDER BY a.id DESC, b.v, c.id LIMIT 3",
    ),
    "counts of a join by a key in both inputs": (
        "SELECT a.k, COUNT(*) AS n FROM t1 a LEFT JOIN t2 b ON b.k = a.k GROUP BY a.k ORDER BY n DESC, k LIMIT 2",
        "SELECT a.k, COUNT(*) AS n FROM t1 a LEFT JOIN t2 b ON b.k = a.k GROUP BY a.k ORDER BY 2 DESC, 1 LIMIT 2",
    ),
    "an alias that hides a column": (
        "SELECT id, -id AS v FROM t1 ORDER BY v + 0 LIMIT 2",
        "SELECT id, -id AS v FROM t1 ORDER BY -id LIMIT 2",
    ),
    "an aggregate of a column that an alias hides": (
        "SELECT k, SUM(-v) AS v FROM t1 GROUP BY k ORDER BY COALESCE(SUM(v), 0), k LIMIT 2",
        "SELECT t1.k, SUM(-t1.v) AS w FROM t1 GROUP BY k ORDER BY COALESCE(SUM(t1.v), 0), k LIMIT 2",
    ),
    "an alias inside of an aggregate": (
        "SELECT k + 1 AS m FROM t1 GROUP BY k + 1 ORDER BY MAX(m) DESC LIMIT 1",
        "SELECT k + 1 AS m FROM t1 GROUP BY k + 1 ORDER BY k + 1 DESC LIMIT 1",
    ),
    "a constant, which is no position": (
        "SELECT id, 7 AS seven FROM t1 ORDER BY seven, seven - id, id LIMIT 2",
        "SELECT id, 7 AS seven FROM t1 ORDER BY -id LIMIT 2",
    ),
    "a value of a distinct output": (
        "SELECT DISTINCT a.k, a.s FROM t1 a ORDER BY CASE WHEN k = 2 THEN 0 ELSE 1 END, a.k, s LIMIT 3",
        "SELECT DISTINCT a.k, a.s FROM t1 a ORDER BY CASE WHEN a.k = 2 THEN 0 ELSE 1 END, a.k, a.s LIMIT 3",
    ),
    "a value of a set": (
        "SELECT k FROM t1 UNION SELECT v FROM t2 ORDER BY ABS(k - 2), k LIMIT 3",
        "SELECT k FROM (SELECT k FROM t1 UNION SELECT v FROM t2) ORDER BY ABS(k - 2), k LIMIT 3",
    ),
}

CORRELATED = [
    "SELECT a.id FROM t1 a WHERE (SELECT COUNT(*) FROM t2 b WHERE (b.k = a.k AND b.v = 1) OR (b.k = a.k AND b.s = 'a')) > 0",
    "SELECT a.id FROM t1 a WHERE (SELECT MAX(b.id) FROM t2 b WHERE b.k = a.k OR (b.v = 1 AND b.k = a.k)) > 1",
    "SELECT a.id, (SELECT COUNT(*) FROM t2 b WHERE (a.k = b.k AND b.id > 2 AND a.v = b.v) OR (b.v = 2 AND a.k = b.k"
    " AND a.v = b.v) OR (a.v = b.v AND a.k = b.k AND b.s IS NULL)) AS n FROM t1 a",
    "SELECT a.id, b.id FROM t1 a, t2 b WHERE (a.k = b.k AND a.v = 1) OR (a.k = b.k AND b.v = 2)",
    "SELECT a.id FROM t1 a WHERE EXISTS (SELECT 1 FROM t2 b WHERE (a.k = b.k AND a.v = 1) OR (a.k = b.k AND b.v > a.v))",
    "SELECT a.id FROM t1 a WHERE NOT ((a.k = 1 AND a.v = 1) OR (a.k = 1 AND a.s = 'a'))",
]


@pytest.mark.parametrize("report", REPORTS)
def test_a_query_is_in_the_order_of_its_output(report: str) -> None:
    query, plain = REPORTS[report]
    for seed in range(30):
        tables = random_tables(random.Random(seed))
        assert planned_answer(f"SET 'execution.runtime-mode' = 'batch'; {query}", tables) == asked_answer(plain, tables)


@pytest.mark.parametrize("query", CORRELATED)
def test_an_equation_of_every_branch_of_an_or_answers_as_sqlite_does(query: str) -> None:
    for seed in range(30):
        tables = random_tables(random.Random(seed))
        assert planned_answer(query, tables) == asked_answer(query, tables)


def test_an_equation_of_every_branch_of_an_or_is_the_key_of_the_join() -> None:
    select = "SELECT o.id FROM orders o, payments p WHERE (o.id = p.order_id AND o.amount > 1) OR (o.id = p.order_id AND p.id > 2)"
    assert any("Join" in line and "id=order_id" in line.replace(" ", "") for line in shop_plan(select)), shop_plan(
        select
    )


def test_a_place_in_a_calculation_is_worked_out_once() -> None:
    ranked = "SELECT id, ROW_NUMBER() OVER (PARTITION BY item ORDER BY ts) AS n FROM orders"
    text = "\n".join(shop_plan(f"{ranked} ORDER BY n * -1 LIMIT 2"))
    assert "order_key" in text
    assert text.count("ROW_NUMBER") == 1


def test_a_name_that_two_columns_of_the_output_have_is_refused() -> None:
    error = refused("SELECT a.id, b.id FROM t a JOIN t b ON a.k = b.k ORDER BY id LIMIT 1", after=TABLE)
    assert "can be a.id and b.id" in str(error)


TABLE = "CREATE TABLE t (id BIGINT, k BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 't');"
