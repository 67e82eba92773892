"""LATERAL (SELECT ...) gives the rows of a sub-query for each row before it, and sub-queries stand as values."""

from __future__ import annotations

import random

import pytest
from asked_twice import asked_answer, planned_answer, random_tables
from shop import shop_error, shop_plan

CHANGES = "[retract, own operator]"
_ONE = "SELECT CASE WHEN COUNT(*) = 1 THEN MAX(b.v) END FROM t2 b"

PAIRS = [
    (
        "SELECT a.id, x.m FROM t1 a, LATERAL (SELECT b.v AS m FROM t2 b WHERE b.k = a.k AND b.v <> 2) AS x",
        "SELECT a.id, b.v FROM t1 a JOIN t2 b ON b.k = a.k WHERE b.v <> 2",
    ),
    (
        "SELECT a.id, m FROM t1 a LEFT JOIN LATERAL (SELECT COALESCE(b.v, 9) FROM t2 b WHERE b.k = a.k AND b.v > a.v) AS x (m) ON TRUE",
        "SELECT a.id, CASE WHEN b.id IS NOT NULL THEN COALESCE(b.v, 9) END FROM t1 a LEFT JOIN t2 b ON b.k = a.k AND b.v > a.v",
    ),
    (
        "SELECT a.id, m FROM t1 a CROSS JOIN LATERAL (SELECT a.v + b.v AS m FROM t2 b WHERE b.k = a.k) x",
        "SELECT a.id, a.v + b.v FROM t1 a JOIN t2 b ON b.k = a.k",
    ),
    (
        "SELECT a.id, m, n FROM t1 a, LATERAL (SELECT MAX(b.v) AS m, COUNT(*) + 1 AS n FROM t2 b WHERE b.k = a.k) x",
        "SELECT a.id, (SELECT MAX(v) FROM t2 b WHERE b.k = a.k), (SELECT COUNT(*) + 1 FROM t2 b WHERE b.k = a.k) FROM t1 a",
    ),
    (
        "SELECT a.id, x.v, n FROM t1 a, LATERAL (SELECT b.v, COUNT(*) AS n FROM t2 b WHERE b.k = a.k GROUP BY b.v HAVING COUNT(*) > 1) x",
        "SELECT a.id, b.v, COUNT(*) FROM t1 a JOIN t2 b ON b.k = a.k GROUP BY a.id, b.v HAVING COUNT(*) > 1",
    ),
    (
        "SELECT a.id, x.id AS other FROM t1 a, LATERAL (SELECT b.id FROM t2 b WHERE b.k = a.k ORDER BY b.id DESC LIMIT 2) x",
        "SELECT a.id, b.id FROM t1 a JOIN t2 b ON b.k = a.k WHERE b.id IN (SELECT id FROM t2 c WHERE c.k = a.k ORDER BY id DESC LIMIT 2)",
    ),
    (
        "SELECT a.id, n FROM t1 a LEFT JOIN LATERAL (SELECT b.id AS n FROM t2 b WHERE b.k = a.k ORDER BY 1 LIMIT 1 OFFSET 1) x ON TRUE",
        "SELECT a.id, (SELECT c.id FROM t2 c WHERE c.k = a.k ORDER BY c.id LIMIT 1 OFFSET 1) FROM t1 a",
    ),
    (
        "SELECT a.id, w, y.z FROM t1 a, LATERAL (SELECT DISTINCT b.v AS w FROM t2 b WHERE b.k = a.k) x, LATERAL (SELECT c.id AS z FROM t3 c WHERE c.v = x.w) y",
        "SELECT a.id, x.v, c.id FROM t1 a JOIN (SELECT DISTINCT k, v FROM t2) x ON x.k = a.k JOIN t3 c ON c.v = x.v",
    ),
    ("SELECT a.id, w FROM t1 a, LATERAL (SELECT a.v * 2 AS w WHERE a.k > 1) x WHERE w > 2", "SELECT id, v * 2 FROM t1 WHERE k > 1 AND v * 2 > 2"),
    ("SELECT a.id, n FROM t1 a, LATERAL (SELECT COUNT(*) AS n FROM t2) x", "SELECT id, (SELECT COUNT(*) FROM t2) FROM t1"),
    ("SELECT a.id, (SELECT b.v FROM t2 b WHERE b.k = a.k) AS x FROM t1 a", f"SELECT a.id, ({_ONE} WHERE b.k = a.k) FROM t1 a"),
    ("SELECT a.id, (SELECT b.v FROM t2 b) AS x FROM t1 a", f"SELECT a.id, ({_ONE}) FROM t1 a"),
    ("SELECT a.id FROM t1 a WHERE a.v = SOME (SELECT b.v FROM t2 b)", "SELECT id FROM t1 WHERE v IN (SELECT v FROM t2)"),
    ("SELECT a.id FROM t1 a WHERE a.v <> ALL (SELECT b.v FROM t2 b)", "SELECT id FROM t1 WHERE v NOT IN (SELECT v FROM t2)"),
]  # fmt: skip

ASKED = [
    "SELECT a.id FROM t1 a WHERE EXISTS (SELECT b.k FROM t2 b WHERE b.k = a.k GROUP BY b.k HAVING COUNT(*) > 1)",
    "SELECT a.id FROM t1 a WHERE EXISTS (SELECT b.id FROM t2 b WHERE b.k = a.k AND b.v > a.v ORDER BY b.id LIMIT 1)",
    "SELECT a.id FROM t1 a WHERE a.v IN (SELECT MAX(b.v) FROM t2 b WHERE b.k = a.k GROUP BY b.s)",
    "SELECT a.id FROM t1 a WHERE a.v IN (SELECT b.v FROM t2 b WHERE b.k = a.k ORDER BY b.id LIMIT 1)",
    "SELECT a.id FROM t1 a WHERE (a.k, a.v) IN (SELECT b.k, b.v FROM t2 b) OR a.id = 0",
    "SELECT id FROM t1 WHERE id IN (SELECT id FROM t2) OR id = 1",
    "SELECT a.k FROM t1 a GROUP BY a.k HAVING MAX(a.v) = (SELECT MAX(b.v) FROM t2 b WHERE b.k = a.k) OR a.k IN (SELECT k FROM t3)",
    "SELECT a.k, COUNT(*) AS n FROM t1 a GROUP BY a.k HAVING COUNT(*) IN (SELECT b.v FROM t2 b)",
    "SELECT a.k, MAX(a.v + (SELECT COUNT(*) FROM t2)) AS o, (SELECT COUNT(*) FROM t2) AS m FROM t1 a GROUP BY a.k",
]


@pytest.mark.parametrize(("written", "said"), [*PAIRS, *((query, query) for query in ASKED)])
def test_a_sub_query_beside_rows_gives_what_sqlite_gives(written: str, said: str) -> None:
    chance = random.Random(11)
    for _ in range(30):
        tables = random_tables(chance)
        assert planned_answer(written, tables) == asked_answer(said, tables), tables


def test_a_limit_for_each_row_is_a_top_n_of_the_column_that_is_compared() -> None:
    lines = shop_plan(
        """SELECT o.id, y.method FROM orders AS o,
        LATERAL (SELECT method FROM payments WHERE order_id = o.id ORDER BY paid DESC LIMIT 3) AS y"""
    )
    assert lines[1] == f"  Join INNER keys=[id = around_0] {CHANGES}"
    assert any("Rank ROW_NUMBER 1..3 partition=[order_id] order=[paid DESC]" in line for line in lines), lines


def test_a_plain_sub_query_stays_an_interval_join() -> None:
    lines = shop_plan(
        """SELECT o.id, y.method FROM orders AS o, LATERAL (SELECT method FROM payments
        WHERE order_id = o.id AND paid BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR) AS y"""
    )
    assert any("IntervalJoin" in line or "bounds" in line for line in lines), lines


@pytest.mark.parametrize(
    ("select", "name", "said"),
    [
        ("SELECT 1 FROM orders o RIGHT JOIN LATERAL (SELECT 1) x ON TRUE", "SQL_UNSUPPORTED", "LEFT JOIN ... ON TRUE"),
        ("SELECT 1 FROM orders o LEFT JOIN LATERAL (SELECT 1 AS n) x ON n = 1", "SQL_UNSUPPORTED", "into the sub-query"),
        ("SELECT 1 FROM orders o LEFT JOIN LATERAL (SELECT o.id + y.id FROM payments y WHERE y.order_id = o.id) x ON TRUE", "SQL_UNSUPPORTED", "its own columns"),
        ("SELECT 1 FROM orders o, LATERAL (SELECT MAX(id) FROM payments WHERE order_id > o.id) x", "SQL_UNSUPPORTED", "by = only"),
        ("SELECT 1 FROM orders o, LATERAL (SELECT DISTINCT id FROM payments WHERE order_id = o.id LIMIT 1) x", "SQL_UNSUPPORTED", "Write GROUP BY"),
        ("SELECT 1 FROM orders o, LATERAL (SELECT id FROM payments y) x (a, b)", "SQL_SYNTAX", "names 2 columns"),
        ("SELECT 1 FROM orders o, LATERAL (SELECT id FROM payments) o", "SQL_SYNTAX", 'called "o"'),
        ("SELECT 1 FROM orders o, LATERAL (SELECT nothing FROM payments) x", "SQL_UNKNOWN_COLUMN", '"nothing"'),
        ("SELECT 1 FROM orders o WHERE id > ALL (SELECT id, order_id FROM payments)", "SQL_TYPE", "ANY or ALL has 2 columns"),
        ("SELECT 1 FROM orders o WHERE id IN (SELECT COUNT(*) FROM payments WHERE order_id = o.id)", "SQL_UNSUPPORTED", "also of none"),
        ("SELECT (id, item) IN (SELECT id, method FROM payments) FROM orders", "SQL_UNSUPPORTED", "Use EXISTS"),
        ("SELECT id IN (SELECT id, method FROM payments) FROM orders", "SQL_TYPE", "2 columns, but 1"),
        ("SELECT o.id FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.item = r.item AND o.id IN (SELECT 1)", "SQL_UNSUPPORTED", "Move it into WHERE"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_for_each_row_is_refused_with_what_helps(select: str, name: str, said: str) -> None:
    error = shop_error(select)
    assert error.name == name
    assert said in f"{error.message} {error.remedy}"
