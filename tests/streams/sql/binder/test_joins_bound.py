"""FROM with several tables: what becomes a key, a bound in time, a window or a condition of a join."""

from __future__ import annotations

import pytest
from shop import SHOP, plan_of, shop_error, shop_plan

from millstream.streams.plan.joins import Join

OWN = "[append, own operator]"
CHANGES = "[retract, own operator]"


def join(select: str) -> str:
    """The line of the topmost join."""
    return next(line.strip() for line in shop_plan(select) if "Join" in line)


def test_equal_columns_are_keys_and_the_rest_is_the_condition() -> None:
    assert shop_plan(
        "SELECT o.item, y.method FROM orders AS o JOIN payments AS y ON o.id = y.order_id AND o.amount < y.id"
    ) == [
        "Project [item, method]",
        f"  Join INNER keys=[id = order_id] condition=<(amount, id0) {OWN}",
        "    Scan orders (rocketmq)",
        "    Project [id AS id0, order_id, method]",
        "      Scan payments (rocketmq)",
    ]


def test_a_comma_with_where_is_the_same_join() -> None:
    spoken = plan_of("SELECT o.item FROM orders o JOIN payments y ON o.id = y.order_id WHERE y.method = 'card'")
    older = plan_of("SELECT o.item FROM orders o, payments y WHERE o.id = y.order_id AND y.method = 'card'")
    assert spoken == older


def test_what_concerns_one_side_filters_it_below_the_join() -> None:
    assert shop_plan(
        "SELECT o.id FROM orders o, payments y WHERE o.id = y.order_id AND o.amount > 1 AND y.method = 'card'"
    )[1:] == [
        f"  Join INNER keys=[id = order_id] {OWN}",
        "    Filter >(amount, 1)",
        "      Scan orders (rocketmq)",
        "    Filter =(method, 'card')",
        "      Project [order_id, method]",
        "        Scan payments (rocketmq)",
    ]


def test_a_left_join_filters_below_only_what_loses_no_row() -> None:
    lines = shop_plan(
        "SELECT o.id, y.method FROM orders o LEFT JOIN payments y ON o.id = y.order_id AND y.method = 'card' AND o.amount > 1"
        " WHERE o.item = 'x' AND y.id IS NULL"
    )
    assert lines == [
        "Project [id, method] [retract]",
        "  Filter IS NULL(id0) [retract]",
        f"    Join LEFT keys=[id = order_id] condition=>(amount, 1) {CHANGES}",
        "      Filter =(item, 'x')",
        "        Scan orders (rocketmq)",
        "      Filter =(method, 'card')",
        "        Project [id AS id0, order_id, method]",
        "          Scan payments (rocketmq)",
    ]


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [("JOIN", False, False), ("LEFT JOIN", False, True), ("RIGHT OUTER JOIN", True, False), ("FULL JOIN", True, True)],
)
def test_a_side_that_may_be_missing_has_columns_that_may_be_null(kind: str, left: bool, right: bool) -> None:
    node = plan_of(f"SELECT x.a, y.b FROM (SELECT 1 AS a) AS x {kind} (SELECT 2 AS b) AS y ON x.a = y.b")
    assert [field.type.nullable for field in node.schema.fields] == [left, right]


@pytest.mark.parametrize(
    ("condition", "lower", "upper"),
    [
        ("y.paid BETWEEN o.ts AND o.ts + INTERVAL '10' MINUTE", -600_000, 0),
        ("o.ts BETWEEN y.paid - INTERVAL '1' HOUR AND y.paid + INTERVAL '5' SECOND", -3_600_000, 5000),
        ("o.ts >= y.paid - INTERVAL '1' HOUR AND o.ts < y.paid", -3_600_000, -1),
        ("y.paid <= o.ts + INTERVAL '3' SECOND AND y.paid > o.ts - INTERVAL '1' SECOND", -3000, 999),
        ("o.ts = y.paid", 0, 0),
        ("o.ts > y.paid AND o.ts <= y.paid + INTERVAL '9' SECOND AND o.ts >= y.paid - INTERVAL '1' DAY", 1, 9000),
    ],
)
def test_times_that_are_bounded_on_both_sides_make_an_interval_join(condition: str, lower: int, upper: int) -> None:
    node = plan_of(f"SELECT o.ts, y.paid FROM orders o LEFT JOIN payments y ON o.id = y.order_id AND {condition}")
    below = node.input  # type: ignore[union-attr]
    assert isinstance(below, Join)
    assert below.bounds is not None
    assert (below.bounds.left_time, below.bounds.right_time) == ("ts", "paid")
    assert (below.bounds.lower_ms, below.bounds.upper_ms) == (lower, upper)
    assert below.condition is None
    assert [field.rowtime for field in node.schema.fields] == [True, True]


def test_bounds_of_where_bind_a_comma_join_as_well_and_half_a_bound_is_a_condition() -> None:
    select = "SELECT o.id FROM orders o, payments y WHERE o.id = y.order_id AND o.ts <= y.paid"
    assert join(select) == f"Join INNER keys=[id = order_id] condition=<=(ts, paid) {OWN}"
    assert join(f"{select} AND o.ts > y.paid - INTERVAL '1' MINUTE") == (
        f"Join INNER keys=[id = order_id] bounds=[ts from paid + -59999 ms to paid + 0 ms] {OWN}"
    )


def test_bounds_of_on_and_of_where_hold_both() -> None:
    select = (
        "SELECT o.id FROM orders o JOIN payments y ON o.id = y.order_id AND o.ts BETWEEN y.paid - INTERVAL '1' HOUR AND y.paid"
        " WHERE o.ts BETWEEN y.paid - INTERVAL '1' MINUTE AND y.paid + INTERVAL '1' HOUR AND o.item <> y.method"
    )
    assert join(select) == (
        f"Join INNER keys=[id = order_id] bounds=[ts from paid + -60000 ms to paid + 0 ms] condition=<>(item, method) {OWN}"
    )


def test_processing_times_bound_a_join_as_well() -> None:
    assert (
        join(
            "SELECT o.id FROM orders o JOIN payments y ON o.id = y.order_id AND o.p BETWEEN y.p - INTERVAL '1' SECOND AND y.p"
        )
        == f"Join INNER keys=[id = order_id] bounds=[p from p0 + -1000 ms to p0 + 0 ms] {OWN}"
    )


def test_a_join_without_bounds_keeps_no_event_time() -> None:
    node = plan_of("SELECT o.ts FROM orders o JOIN payments y ON o.id = y.order_id")
    assert not node.schema.fields[0].rowtime


WINDOWED = (
    "(SELECT *, window_start AS s, window_end AS e FROM TABLE(TUMBLE(TABLE {0}, DESCRIPTOR({1}), INTERVAL '1' HOUR)))"
)


def test_equal_bounds_of_attached_windows_make_a_window_join() -> None:
    left, right = WINDOWED.format("orders", "ts"), WINDOWED.format("payments", "paid")
    select = f"SELECT o.id, y.id FROM {left} o {{0}} JOIN {right} y ON o.id = y.order_id AND o.s = y.s"
    assert join(select.format("LEFT") + " AND o.e = y.e") == (
        f"Join LEFT keys=[id = order_id, s = s0, e = e0] windows=[e = e0] {OWN}"
    )
    assert "windows" not in join(select.format("INNER"))


def test_rows_that_change_make_neither_an_interval_join_nor_a_window_join() -> None:
    last = "(SELECT id, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts DESC) AS rn FROM orders) WHERE rn = 1)"
    select = f"SELECT o.id FROM {last} o JOIN payments y ON o.id = y.order_id AND o.ts BETWEEN y.paid - INTERVAL '1' HOUR AND y.paid"
    assert join(select) == (f"Join INNER keys=[id = order_id] condition=BETWEEN(ts, -(paid, 1:00:00), paid) {CHANGES}")


def test_the_end_of_a_window_bounds_an_inner_join_as_its_time_does() -> None:
    highest = (
        "(SELECT MAX(price) AS top, window_end AS e FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
        " GROUP BY window_start, window_end)"
    )
    select = f"SELECT o.id FROM orders o {{0}} JOIN {highest} h ON o.price = h.top"
    where = "o.ts BETWEEN h.e - INTERVAL '10' SECOND AND h.e"
    # The window's time is its end less 1 ms, so both bounds are 1 ms later.
    assert shop_plan(f"{select.format('')} WHERE {where}")[1:5] == [
        f"  Join INNER keys=[price = top] bounds=[ts from window_time + -9999 ms to window_time + 1 ms] {OWN}",
        "    Scan orders (rocketmq)",
        "    Project [aggregate_0 AS top, window_time]",
        "      WindowAggregate TUMBLE(ts, 10000 ms) keys=[] aggregates=[MAX(price) AS aggregate_0] [append, own operator]",
    ]  # fmt: skip
    assert "bounds" not in join(f"{select.format('LEFT')} AND {where}")


def test_computed_sides_and_other_types_become_columns_of_their_own() -> None:
    lines = shop_plan("SELECT o.id FROM orders o JOIN payments y ON UPPER(o.item) = y.method AND o.amount = y.order_id")
    assert lines[1:] == [
        f"  Join INNER keys=[left_key = method, left_key0 = order_id] {OWN}",
        "    Project [id, left_key, CAST(amount AS BIGINT) AS left_key0]",
        "      Project [id, amount, UPPER(item) AS left_key]",
        "        Scan orders (rocketmq)",
        "    Project [order_id, method]",
        "      Scan payments (rocketmq)",
    ]


def test_using_and_natural_give_the_common_column_once() -> None:
    node = plan_of("SELECT * FROM (SELECT id, item FROM orders) JOIN (SELECT id, method FROM payments) USING (id)")
    assert node.schema.names == ("id", "item", "method")
    assert node == plan_of("SELECT * FROM (SELECT id, item FROM orders) NATURAL JOIN (SELECT id, method FROM payments)")
    full = shop_plan("SELECT id, method FROM (SELECT id FROM orders) FULL JOIN payments USING (id)")
    assert full[0] == "Project [COALESCE(id, id0) AS id, method] [retract]"


def test_a_filter_may_stand_before_the_join() -> None:
    assert plan_of("SELECT o.id FROM orders o WHERE o.amount > 1 JOIN payments y ON o.id = y.order_id WHERE y.id > 2") == plan_of(
        "SELECT o.id FROM orders o JOIN payments y ON o.id = y.order_id WHERE o.amount > 1 AND y.id > 2"
    )  # fmt: skip


def test_brackets_around_joins_and_names_of_columns_behind_an_alias_are_read() -> None:
    node = plan_of("SELECT t.a, r.rate FROM (rates r JOIN (SELECT item, id FROM orders) AS t (a, b) ON r.item = t.a)")
    assert node.schema.names == ("a", "rate")


def test_three_tables_each_with_its_own_condition() -> None:
    lines = shop_plan(
        "SELECT o.id FROM orders o, payments y, rates r WHERE o.id = y.order_id AND o.item = r.item AND r.rate > o.price"
    )
    assert [line for line in lines if "Join" in line] == [
        f"  Join INNER keys=[item = item0] condition=>(rate, price) {OWN}",
        f"    Join INNER keys=[id = order_id] {OWN}",
    ]


def test_a_cross_join_has_neither_key_nor_condition() -> None:
    assert join("SELECT o.id FROM orders o CROSS JOIN payments y") == f"Join INNER keys=[] {OWN}"


@pytest.mark.parametrize(
    ("select", "name", "said"),
    [
        ("SELECT id FROM orders o, payments y", "SQL_UNKNOWN_COLUMN", '"id" can be o.id and y.id'),
        ("SELECT o.idd FROM orders o", "SQL_UNKNOWN_COLUMN", 'Did you mean "id"?'),
        ("SELECT x.id FROM orders o", "SQL_UNKNOWN_COLUMN", '"x"'),
        ("SELECT 1 FROM orders, orders", "SQL_SYNTAX", "alias"),
        ("SELECT 1 FROM orders o JOIN payments y", "SQL_SYNTAX", "has no condition"),
        ("SELECT 1 FROM orders o CROSS JOIN payments y ON TRUE", "SQL_SYNTAX", "CROSS JOIN"),
        ("SELECT 1 FROM orders JOIN payments USING (item)", "SQL_UNKNOWN_COLUMN", "both sides"),
        ("SELECT 1 FROM rates NATURAL JOIN (SELECT method FROM payments)", "SQL_SYNTAX", "NATURAL"),
        ("SELECT 1 FROM orders AS o (a, b)", "SQL_SYNTAX", "names 2"),
        ("SELECT o.id FROM orders o JOIN payments y ON o.id = y.paid", "SQL_TYPE", "cannot be compared"),
    ],
)
def test_a_join_that_cannot_be_is_refused_with_what_helps(select: str, name: str, said: str) -> None:
    error = shop_error(select)
    assert error.name == name
    assert said in f"{error.message} {error.remedy}"
    assert error.position is not None
    assert error.position.line > SHOP.count("\n")
