"""Set operations, WITH and VALUES, and sub-queries in WHERE and SELECT."""

from __future__ import annotations

import pytest
from shop import plan_of, shop_error, shop_plan

from millstream.streams.plan.nodes import Values

OWN = "[append, own operator]"
CHANGES = "[retract, own operator]"


def test_union_all_unites_and_union_keeps_each_row_once() -> None:
    select = "SELECT id, item FROM orders {0} SELECT order_id, method FROM payments {0} SELECT 1, 'x'"
    assert shop_plan(select.format("UNION ALL")) == [
        "Union of 3 inputs",
        "  Project [id, item]",
        "    Scan orders (rocketmq)",
        "  Project [order_id AS id, method AS item]",
        "    Project [order_id, method]",
        "      Scan payments (rocketmq)",
        "  Project [CAST(EXPR$0 AS BIGINT NOT NULL) AS id, EXPR$1 AS item]",
        "    Values",
    ]
    assert shop_plan("SELECT item FROM orders UNION SELECT method FROM payments")[:2] == [
        f"Aggregate keys=[item] aggregates=[] {CHANGES}",
        "  Union of 2 inputs",
    ]


def test_event_time_stays_where_all_inputs_of_a_union_have_it() -> None:
    both = plan_of("SELECT ts FROM orders UNION ALL SELECT paid FROM payments")
    assert both.schema.fields[0].rowtime
    one = plan_of("SELECT ts FROM orders UNION ALL SELECT CAST('2026-01-01 00:00:00' AS TIMESTAMP(3))")
    assert not one.schema.fields[0].rowtime


@pytest.mark.parametrize("operation", ["INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"])
def test_intersect_and_except_remember_rows(operation: str) -> None:
    lines = shop_plan(f"SELECT item FROM orders {operation} SELECT method FROM payments")
    assert lines[0] == f"{operation} {CHANGES}"


def test_intersect_binds_closer_than_union_and_minus_is_except() -> None:
    lines = shop_plan("SELECT 1 UNION ALL SELECT 2 INTERSECT SELECT 3")
    assert lines[0].startswith("Union of 2 inputs")
    assert any("INTERSECT" in line for line in lines[1:])
    assert plan_of("SELECT item FROM orders MINUS SELECT 'x'") == plan_of("SELECT item FROM orders EXCEPT SELECT 'x'")


def test_with_names_queries_for_the_ones_behind_them() -> None:
    assert plan_of(
        "WITH big AS (SELECT id, item FROM orders WHERE amount > 9), same AS (SELECT item FROM big) SELECT item FROM same"
    ) == plan_of("SELECT item FROM (SELECT item FROM (SELECT id, item FROM orders WHERE amount > 9) AS big)")
    assert plan_of("WITH named (n) AS (SELECT item FROM orders) SELECT * FROM named").schema.names == ("n",)


def test_values_and_a_select_without_from_are_rows_of_the_script() -> None:
    node = plan_of("VALUES (1, 'a'), (2.5, NULL)")
    assert isinstance(node, Values)
    assert [f"{field.name} {field.type}" for field in node.schema.fields] == [
        "EXPR$0 DECIMAL(11, 1) NOT NULL",
        "EXPR$1 STRING",
    ]
    one = plan_of("SELECT 1 + 1 AS two, 'x' AS x")
    assert isinstance(one, Values)
    assert one.schema.names == ("two", "x")
    assert plan_of("SELECT a FROM (VALUES (1), (2)) AS t (a) WHERE a > 1").schema.names == ("a",)


def test_in_and_exists_are_semi_joins_and_their_negations_anti_joins() -> None:
    for condition in (
        "id IN (SELECT order_id FROM payments WHERE method = 'card')",
        "EXISTS (SELECT * FROM payments y WHERE y.order_id = orders.id AND y.method = 'card')",
    ):
        assert shop_plan(f"SELECT item FROM orders WHERE amount > 1 AND {condition}")[1:3] == [
            f"  Join SEMI keys=[id = order_id] {OWN}",
            "    Filter >(amount, 1)",
        ]
    anti = shop_plan("SELECT item FROM orders WHERE NOT EXISTS (SELECT 1 FROM payments WHERE order_id = orders.id)")
    assert anti[1] == f"  Join ANTI keys=[id = order_id] {CHANGES}"
    knows_null = shop_plan("SELECT item FROM orders WHERE id NOT IN (SELECT order_id FROM payments)")
    assert knows_null[1] == f"  Join ANTI keys=[id = order_id] null-aware {CHANGES}"


def test_a_sub_query_may_compare_more_than_equality_with_the_rows_around_it() -> None:
    lines = shop_plan(
        "SELECT o.item FROM orders o WHERE EXISTS (SELECT 1 FROM payments y WHERE y.order_id = o.id AND y.paid > o.ts)"
    )
    assert lines[1] == f"  Join SEMI keys=[id = order_id] condition=>(paid, ts) {OWN}"


def test_several_columns_and_a_grouped_sub_query_can_be_looked_for() -> None:
    lines = shop_plan(
        "SELECT id FROM orders WHERE (item, customer) IN (SELECT method, MAX(order_id) FROM payments GROUP BY method)"
    )
    assert lines[1] == f"  Join SEMI keys=[item = method, customer = EXPR$1] {CHANGES}"


def test_a_value_of_a_sub_query_is_a_join_with_one_row() -> None:
    assert shop_plan("SELECT item FROM orders WHERE id = (SELECT MAX(order_id) FROM payments)")[1] == (
        f"  Join INNER keys=[id = EXPR$0] {CHANGES}"
    )
    assert shop_plan("SELECT item FROM orders WHERE price > (SELECT AVG(price) FROM orders)")[1] == (
        f"  Join INNER keys=[] condition=>(price, EXPR$0) {CHANGES}"
    )
    lines = shop_plan("SELECT item, (SELECT COUNT(*) FROM payments) AS n FROM orders")
    assert lines[:2] == ["Project [item, EXPR$0 AS n] [retract]", f"  Join LEFT keys=[] {CHANGES}"]
    having = shop_plan("SELECT item FROM orders GROUP BY item HAVING COUNT(*) > (SELECT COUNT(*) FROM payments)")
    assert having[1] == "  Filter >(aggregate_0, EXPR$0) [retract]"


def test_an_aggregate_by_columns_of_the_rows_around_it_is_a_grouping_that_is_joined() -> None:
    lines = shop_plan("SELECT id FROM orders o WHERE price = (SELECT MAX(i.price) FROM orders i WHERE i.item = o.item)")
    assert lines[:4] == [
        "Project [id] [retract]",
        "  Filter =(price, aggregate_0) [retract]",
        f"    Join LEFT keys=[item = around_0] {CHANGES}",
        "      Scan orders (rocketmq)",
    ]
    assert lines[4] == "      Project [aggregate_0, item AS around_0] [retract]"


def test_a_count_of_no_rows_around_a_row_is_0() -> None:
    count = "(SELECT COUNT(*) FROM payments y WHERE y.order_id = o.id AND y.method = 'card')"
    assert (
        shop_plan(f"SELECT id, {count} AS n FROM orders o")[0]
        == "Project [id, COALESCE(aggregate_0, 0) AS n] [retract]"
    )
    assert (
        "Filter =(COALESCE(aggregate_0, 0), 0) [retract]" in shop_plan(f"SELECT id FROM orders o WHERE {count} = 0")[1]
    )


@pytest.mark.parametrize(
    ("select", "name", "said"),
    [
        ("SELECT id FROM orders UNION ALL SELECT id, method FROM payments", "SQL_TYPE", "the first has 1, this one 2"),
        ("SELECT id FROM orders UNION ALL SELECT paid FROM payments", "SQL_TYPE", 'no common type for "id"'),
        ("VALUES (1, 2), (3)", "SQL_SYNTAX", "2 columns"),
        ("VALUES (id)", "SQL_UNKNOWN_COLUMN", '"id"'),
        ("SELECT (SELECT MAX(y.id) FROM payments y WHERE y.order_id > o.id) FROM orders o", "SQL_UNSUPPORTED", "by = only"),
        ("SELECT (SELECT MAX(y.id) FROM payments y WHERE y.order_id = o.nothing) FROM orders o", "SQL_UNKNOWN_COLUMN", 'column "o"'),
        ("SELECT id FROM orders WHERE id = (SELECT MAX(order_id), 1 FROM payments)", "SQL_TYPE", "one column"),
        ("SELECT id FROM orders WHERE id IN (SELECT order_id, id FROM payments)", "SQL_TYPE", "2 columns"),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", "SQL_UNKNOWN_TABLE", '"b"'),
        ("WITH RECURSIVE a AS (SELECT 1) SELECT * FROM a", "SQL_UNSUPPORTED", "RECURSIVE"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(select: str, name: str, said: str) -> None:
    error = shop_error(select)
    assert error.name == name
    assert said in f"{error.message} {error.remedy}"
