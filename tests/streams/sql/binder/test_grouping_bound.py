"""GROUP BY: without a window, by windows of all spellings, by attached windows and by grouping sets."""

from __future__ import annotations

import pytest
from shop import plan_of, shop_error, shop_plan

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.nodes import Project

OWN = "[append, own operator]"
CHANGES = "[retract, own operator]"
NO_NULL = "BIGINT NOT NULL"


def test_a_grouping_without_a_window_changes_as_rows_come() -> None:
    assert shop_plan(
        "SELECT item, SUM(amount) AS s FROM orders WHERE amount > 0 GROUP BY item HAVING COUNT(*) > 1"
    ) == [
        "Project [item, aggregate_0 AS s] [retract]",
        "  Filter >(aggregate_1, 1) [retract]",
        f"    Aggregate keys=[item] aggregates=[SUM(amount) AS aggregate_0, COUNT(*) AS aggregate_1] {CHANGES}",
        "      Filter >(amount, 0)",
        "        Scan orders (rocketmq)",
    ]


def test_aggregates_of_all_rows_need_no_group() -> None:
    assert shop_plan("SELECT COUNT(*) AS n, COUNT(DISTINCT customer) FILTER (WHERE amount > 1) AS c FROM orders") == [
        "Project [aggregate_0 AS n, aggregate_1 AS c] [retract]",
        "  Aggregate keys=[] aggregates=[COUNT(*) AS aggregate_0,"
        f" COUNT(DISTINCT customer) FILTER (WHERE >(amount, 1)) AS aggregate_1] {CHANGES}",
        "    Scan orders (rocketmq)",
    ]


def test_distinct_rows_are_a_grouping_without_aggregates() -> None:
    assert shop_plan("SELECT DISTINCT item, amount + 1 AS more FROM orders") == [
        f"Aggregate keys=[item, more] aggregates=[] {CHANGES}",
        "  Project [item, +(amount, 1) AS more]",
        "    Scan orders (rocketmq)",
    ]


@pytest.mark.parametrize(
    ("function", "grouped", "shown"),
    [
        ("TUMBLE(DATA => TABLE orders, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR)", "TUMBLE(ts, INTERVAL '1' HOUR)", f"TUMBLE(ts, 3600000 ms) | {OWN}"),
        ("HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '1' HOUR)", "HOP(ts, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)", f"HOP(ts, 300000 ms, 3600000 ms) | {OWN}"),
        ("CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '1' HOUR)", "CUMULATE(ts, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)", f"CUMULATE(ts, 300000 ms, 3600000 ms) | {OWN}"),
        ("SESSION(TABLE orders PARTITION BY item, DESCRIPTOR(ts), INTERVAL '5' MINUTE)", "SESSION(ts, INTERVAL '5' MINUTE)", f"SESSION(ts, 300000 ms PARTITION BY item) | {OWN}"),
        ("HOP(TABLE orders, DESCRIPTOR(p), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE, INTERVAL '3' SECOND)", "HOP(p, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE, INTERVAL '3' SECOND)", f"HOP(p, 60000 ms, 120000 ms, offset 3000 ms) | {OWN}"),
    ],
)  # fmt: skip
def test_window_functions_and_group_windows_are_one_plan(function: str, grouped: str, shown: str) -> None:
    name = grouped.partition("(")[0]
    arguments = grouped.partition("(")[2]
    spoken = f"SELECT item, COUNT(*) AS n, window_start AS s, window_end AS e FROM TABLE({function}) GROUP BY window_start, window_end, item"
    older = f"SELECT item, COUNT(*) AS n, {name}_START({arguments} AS s, {name}_END(o.{arguments} AS e FROM orders o GROUP BY item, {grouped}"
    assert plan_of(spoken) == plan_of(older)
    window, _, modes = shown.partition(" | ")
    assert (
        shop_plan(spoken)[1] == f"  WindowAggregate {window} keys=[item] aggregates=[COUNT(*) AS aggregate_0] {modes}"
    )


def test_a_session_of_other_keys_than_the_groups_is_cut_before_it_is_grouped() -> None:
    lines = shop_plan(
        "SELECT item, COUNT(*) AS n FROM TABLE(SESSION(TABLE orders PARTITION BY (customer), DESCRIPTOR(ts),"
        " GAP => INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, item"
    )
    assert lines[1:3] == [
        f"  WindowAggregate ATTACHED(window_start, window_end) keys=[item] aggregates=[COUNT(*) AS aggregate_0] {OWN}",
        f"    WindowRows SESSION(ts, 60000 ms PARTITION BY customer) {OWN}",
    ]


def test_a_window_grouped_again_uses_the_bounds_that_its_rows_carry() -> None:
    assert shop_plan(
        "SELECT MAX(n) AS most, e FROM (SELECT item, COUNT(*) AS n, window_start AS s, window_end AS e"
        " FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE))"
        " GROUP BY item, window_start, window_end) GROUP BY s, e"
    ) == [
        "Project [aggregate_0 AS most, window_end AS e]",
        f"  WindowAggregate ATTACHED(s, e) keys=[] aggregates=[MAX(n) AS aggregate_0] {OWN}",
        "    Project [aggregate_0 AS n, window_start AS s, window_end AS e, window_time]",
        f"      WindowAggregate HOP(ts, 60000 ms, 120000 ms) keys=[item] aggregates=[COUNT(*) AS aggregate_0] {OWN}",
        "        Scan orders (rocketmq)",
    ]


def test_a_filter_on_the_bounds_of_a_hopping_window_does_not_cut_windows_twice() -> None:
    lines = shop_plan(
        "SELECT COUNT(*) AS n FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE))"
        " WHERE window_end > TIMESTAMP '2026-01-01 00:00:00' GROUP BY window_start, window_end"
    )
    assert lines[1].startswith("  WindowAggregate ATTACHED(window_start, window_end)")
    assert lines[3] == "      WindowRows HOP(ts, 60000 ms, 120000 ms)"


HOURLY = "TABLE(TUMBLE(TABLE {0}, DESCRIPTOR({1}), INTERVAL '1' HOUR))"


def test_distinct_rows_of_a_window_are_final_at_its_end() -> None:
    lines = shop_plan(f"SELECT DISTINCT item, window_end AS e, window_start AS s FROM {HOURLY.format('orders', 'ts')}")
    assert lines == [
        "Project [item, window_end AS e, window_start AS s]",
        f"  WindowAggregate ATTACHED(s, e) keys=[item] aggregates=[] {OWN}",
        "    Project [item, window_end AS e, window_start AS s, window_time]",
        "      WindowRows TUMBLE(ts, 3600000 ms)",
        "        Scan orders (rocketmq)",
    ]


def test_windows_of_all_inputs_of_a_union_can_be_grouped_by() -> None:
    rows = [
        f"SELECT {name} AS x, window_start AS s, window_end AS e FROM {HOURLY.format(table, time)}"
        for name, table, time in (("item", "orders", "ts"), ("method", "payments", "paid"))
    ]
    lines = shop_plan(f"SELECT x, COUNT(*) AS n FROM ({' UNION ALL '.join(rows)}) GROUP BY x, s, e")
    assert lines[1] == f"  WindowAggregate ATTACHED(s, e) keys=[x] aggregates=[COUNT(*) AS aggregate_0] {OWN}"
    assert lines[2] == "    Union of 2 inputs"
    assert next(line.strip() for line in lines if "window_time]" in line) == "Project [x, s, e, window_time]"


def test_the_bounds_of_a_window_alone_do_not_make_a_windowed_grouping() -> None:
    lines = shop_plan(
        "SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
        " GROUP BY window_start"
    )
    assert lines[1] == f"  Aggregate keys=[window_start] aggregates=[COUNT(*) AS aggregate_0] {CHANGES}"


def test_the_time_of_a_window_is_event_time_for_the_next_one() -> None:
    node = plan_of(
        "SELECT SUM(n) AS s FROM (SELECT TUMBLE_ROWTIME(ts, INTERVAL '1' MINUTE) AS t, COUNT(*) AS n FROM orders"
        " GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)) GROUP BY TUMBLE(t, INTERVAL '1' HOUR)"
    )
    assert isinstance(node, Project)
    assert isinstance(node.input, WindowAggregate)
    assert str(node.input.window) == "TUMBLE(t, 3600000 ms)"


def test_a_window_may_stand_on_a_sub_query_and_on_processing_time() -> None:
    lines = shop_plan(
        "SELECT TUMBLE_PROCTIME(q, INTERVAL '1' SECOND) AS x, COUNT(*) AS n FROM"
        " (SELECT *, PROCTIME() AS q FROM orders) GROUP BY TUMBLE(q, INTERVAL '1' SECOND)"
    )
    assert lines[1].startswith("  WindowAggregate TUMBLE(q, 1000 ms) keys=[]")
    assert lines[2] == "    Project [PROCTIME() AS q]"
    nested = "SELECT COUNT(*) AS n FROM TABLE(TUMBLE((SELECT * FROM orders), DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    assert shop_plan(f"{nested} GROUP BY window_start, window_end")[1].startswith("  WindowAggregate TUMBLE")


def test_a_window_over_the_clock_needs_no_column_for_it() -> None:
    lines = shop_plan("SELECT item, COUNT(*) AS n FROM orders GROUP BY item, TUMBLE(PROCTIME(), INTERVAL '1' SECOND)")
    assert lines[1:3] == [
        f"  WindowAggregate TUMBLE(processing_time, 1000 ms) keys=[item] aggregates=[COUNT(*) AS aggregate_0] {OWN}",
        "    Project [item, PROCTIME() AS processing_time]",
    ]


def test_grouping_sets_copy_each_row_for_each_set() -> None:
    assert shop_plan(
        "SELECT item, customer, GROUPING_ID(item, customer) AS g, SUM(amount) AS s FROM orders"
        " GROUP BY GROUPING SETS ((item, customer), (item), ())"
    ) == [
        "Project [item, customer, CASE WHEN =(grouping_set, 0) THEN 0 WHEN =(grouping_set, 1) THEN 1"
        " WHEN =(grouping_set, 2) THEN 3 ELSE 0 END AS g, aggregate_0 AS s] [retract]",
        "  Aggregate keys=[item0 AS item, customer0 AS customer, grouping_set]"
        f" aggregates=[SUM(amount) AS aggregate_0] {CHANGES}",
        "    Expand names=[amount, item0, customer0, grouping_set]"
        " projections=[amount, item, customer, 0; amount, item, NULL, 1; amount, NULL, NULL, 2]",
        "      Scan orders (rocketmq)",
    ]


def test_cube_and_rollup_are_the_grouping_sets_that_they_stand_for() -> None:
    head = "SELECT item, customer, COUNT(*) AS n FROM orders GROUP BY "
    assert plan_of(f"{head} CUBE (item, customer)") == plan_of(
        f"{head} GROUPING SETS ((item, customer), (item), (customer), ())"
    )
    assert plan_of(f"{head} ROLLUP (item, customer)") == plan_of(f"{head} GROUPING SETS ((item, customer), item, ())")
    assert plan_of(f"{head} item, ROLLUP (customer)") == plan_of(f"{head} GROUPING SETS ((item, customer), (item))")


def test_grouping_sets_within_a_window_keep_the_window() -> None:
    lines = shop_plan(
        "SELECT item, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
        " GROUP BY window_start, window_end, GROUPING SETS ((item), ())"
    )
    assert lines[1].startswith("  WindowAggregate TUMBLE(ts, 3600000 ms) keys=[item0 AS item, grouping_set] ")
    assert lines[2] == "    Expand names=[ts, item0, grouping_set] projections=[ts, item, 0; ts, NULL, 1]"


def test_a_grouped_expression_is_known_however_its_columns_are_written() -> None:
    node = plan_of(
        "SELECT UPPER(o.item) AS u, o.place.city AS c, COUNT(*) AS n FROM orders o GROUP BY UPPER(item), place.city"
    )
    assert node.schema.names == ("u", "c", "n")
    whole = plan_of("SELECT place.zip + 1 AS z FROM orders GROUP BY place")
    assert str(whole.schema.fields[0].type) == "INT"


@pytest.mark.parametrize(
    ("select", "name", "said"),
    [
        ("SELECT UPPER(item) AS u, COUNT(*) FROM orders GROUP BY u", "SQL_UNKNOWN_COLUMN", "Write GROUP BY UPPER(item)."),
        ("SELECT item, COUNT(*) FROM orders GROUP BY 1", "SQL_UNSUPPORTED", "no positions"),
        ("SELECT customer, COUNT(*) FROM orders GROUP BY item", "SQL_SYNTAX", "neither grouped by"),
        ("SELECT item FROM orders HAVING item = 'a'", "SQL_SYNTAX", "neither grouped by"),
        ("SELECT * FROM orders GROUP BY item", "SQL_SYNTAX", "SELECT *"),
        ("SELECT TUMBLE_START(ts, INTERVAL '2' HOUR) FROM orders GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)", "SQL_UNSUPPORTED", "same arguments"),
        ("SELECT COUNT(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), HOP(ts, INTERVAL '1' HOUR, INTERVAL '2' HOUR)", "SQL_UNSUPPORTED", "One window"),
        ("SELECT COUNT(*) FROM orders GROUP BY SESSION(ts, INTERVAL '1' HOUR), CUBE (item)", "SQL_UNSUPPORTED", "grouping sets"),
        ("SELECT COUNT(*) FROM (SELECT MAX(ts) AS t FROM orders) GROUP BY TUMBLE(t, INTERVAL '1' HOUR)", "SQL_TIME_ATTRIBUTE", "watermarks away"),
        ("SELECT COUNT(*) FROM orders GROUP BY HOP(ts, INTERVAL '1' HOUR)", "SQL_TYPE", "2 intervals"),
        ("SELECT COUNT(*) FROM orders GROUP BY TUMBLE(id, INTERVAL '1' HOUR)", "SQL_TIME_ATTRIBUTE", "ts"),
        ("SELECT * FROM TABLE(CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '7' MINUTE, INTERVAL '1' HOUR))", "SQL_TYPE", "multiple"),
        ("SELECT * FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '0.001' SECOND, INTERVAL '1' DAY))", "SQL_TYPE", "100000 windows"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '0' HOUR))", "SQL_TYPE", "1 millisecond"),
        ("SELECT * FROM TABLE(HOPP(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR))", "SQL_UNSUPPORTED", "no window function"),
        ("SELECT * FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR))", "SQL_SYNTAX", "SLIDE => "),
        ("SELECT * FROM TABLE(TUMBLE(TABLE orders PARTITION BY item, DESCRIPTOR(ts), INTERVAL '1' HOUR))", "SQL_UNSUPPORTED", "only sessions"),
        ("SELECT GROUPING(amount) FROM orders GROUP BY CUBE (item)", "SQL_SYNTAX", "expressions of GROUP BY"),
        ("SELECT COUNT(*) FROM orders GROUP BY " + ", ".join(["CUBE (item, customer, id)"] * 3), "SQL_UNSUPPORTED", "512 grouping sets"),
        ("SELECT SUM(item) FROM orders", "SQL_TYPE", "a number"),
    ],
)  # fmt: skip
def test_a_grouping_that_cannot_be_is_refused_with_what_helps(select: str, name: str, said: str) -> None:
    error = shop_error(select)
    assert error.name == name
    assert said in f"{error.message} {error.remedy}"
