"""Places, OVER and sorted results: a filtered place is a Top-N, other OVER calls wait for time, sorting needs an end."""

from __future__ import annotations

import pytest
from shop import SHOP, plan_of, shop_error, shop_plan

from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan, inputs_of
from millstream.streams.plan.ordering import Rank
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_node, explain_sink

OWN = "[append, own operator]"
CHANGES = "[retract, own operator]"
RANKED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC, id) AS rn FROM orders)"


def rank_of(select: str) -> Rank:
    """The Top-N of a plan."""
    waiting: list[Node] = [plan_of(select)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Rank):
            return node
        waiting += inputs_of(node)
    raise AssertionError(f"no Top-N in {select}")


def test_a_filtered_place_is_a_top_n() -> None:
    assert shop_plan(f"SELECT item, price FROM {RANKED} WHERE rn <= 10 AND price > 1") == [
        "Project [item, price] [retract]",
        "  Filter >(price, 1) [retract]",
        "    Project [item, price] [retract]",
        f"      Rank ROW_NUMBER 1..10 partition=[item] order=[price DESC, id ASC] {CHANGES}",
        "        Scan orders (rocketmq)",
    ]


@pytest.mark.parametrize(
    ("condition", "first", "last"),
    [
        ("rn <= 3", 1, 3),
        ("rn < 3", 1, 2),
        ("3 >= rn", 1, 3),
        ("rn = 1", 1, 1),
        ("2 = rn", 2, 2),
        ("rn BETWEEN 2 AND 5", 2, 5),
        ("rn > 1 AND rn <= 4 AND rn < 9", 2, 4),
    ],
)
def test_the_places_of_a_top_n_are_what_the_filter_says(condition: str, first: int, last: int) -> None:
    rank = rank_of(f"SELECT item, rn FROM {RANKED} AS t WHERE {condition}")
    assert (rank.first, rank.last, rank.rank_name is not None) == (first, last, True)


def test_the_place_is_bounded_through_views_aliases_and_joins() -> None:
    view = "CREATE VIEW best AS SELECT id, RANK() OVER (PARTITION BY item ORDER BY price DESC) AS place_ FROM orders;"
    assert (
        rank_of(
            f"{view} SELECT id FROM best AS b (x, y) WHERE y <= 2".replace("SELECT id FROM best", "SELECT x FROM best")
        ).function
        == "RANK"
    )
    joined = f"{view} SELECT b.id FROM payments y JOIN best b ON y.order_id = b.id AND b.place_ <= 2"
    assert rank_of(joined).last == 2


def test_the_places_within_an_attached_window_are_final_at_its_end() -> None:
    rank = rank_of(
        "SELECT * FROM (SELECT *, DENSE_RANK() OVER (PARTITION BY window_start, window_end ORDER BY total DESC) AS rn FROM"
        " (SELECT item, SUM(amount) AS total, window_start, window_end FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts),"
        " INTERVAL '1' HOUR)) GROUP BY item, window_start, window_end)) WHERE rn <= 3"
    )
    assert (rank.function, rank.window_end) == ("DENSE_RANK", "window_end")


FIRSTS = (
    "SELECT id, item FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY ts) AS rn FROM {0}) WHERE rn = 1"
)


def test_the_first_row_of_a_key_by_event_time_never_changes() -> None:
    assert shop_plan(FIRSTS.format("orders")) == [
        "Project [id, item]",
        "  Project [id, item]",
        f"    Rank ROW_NUMBER 1 partition=[item] order=[ts ASC] final at ts {OWN}",
        "      Scan orders (rocketmq)",
    ]


@pytest.mark.parametrize(
    "select",
    [
        FIRSTS.format("orders").replace("ts)", "ts DESC)"),
        FIRSTS.format("orders").replace("ts)", "ts, id)"),
        FIRSTS.format("orders").replace("rn = 1", "rn <= 2"),
        FIRSTS.format("orders").replace("ROW_NUMBER", "RANK"),
        FIRSTS.format("(SELECT id, item, CAST(ts AS TIMESTAMP(6)) AS ts FROM orders)"),
        FIRSTS.format("(SELECT * FROM orders INTERSECT SELECT * FROM orders)"),
    ],
)
def test_other_places_change(select: str) -> None:
    assert changelog_of(rank_of(select)) is ChangelogMode.RETRACT


def test_a_partition_by_an_expression_is_computed_below() -> None:
    lines = shop_plan(
        "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY UPPER(item) ORDER BY p) AS rn FROM orders) WHERE rn = 1"
    )
    assert lines[-3:] == [
        f"    Rank ROW_NUMBER 1 partition=[partition_key] order=[p ASC] {OWN}",
        "      Project [id, p, UPPER(item) AS partition_key]",
        "        Scan orders (rocketmq)",
    ]


def test_a_place_by_ascending_time_needs_no_filter() -> None:
    lines = shop_plan("SELECT id, ROW_NUMBER() OVER (PARTITION BY item ORDER BY ts) AS n FROM orders")
    assert lines[1] == (
        f"  Over partition=[item] order=[ts ASC] frame=[rows, all before] calls=[ROW_NUMBER() AS over_0] {OWN}"
    )


@pytest.mark.parametrize(
    ("over", "frame"),
    [
        ("ORDER BY ts", "range, all before"),
        ("ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW", "rows, 9 rows before"),
        ("ORDER BY ts ROWS 2 PRECEDING", "rows, 2 rows before"),
        ("ORDER BY ts RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW", "range, 60000 ms before"),
        ("ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "rows, all before"),
        ("ORDER BY ts RANGE CURRENT ROW", "range, 0 ms before"),
    ],
)
def test_frames_count_rows_or_time(over: str, frame: str) -> None:
    lines = shop_plan(f"SELECT SUM(amount) OVER (PARTITION BY item {over}) AS s FROM orders")
    assert lines[1] == f"  Over partition=[item] order=[ts ASC] frame=[{frame}] calls=[SUM(amount) AS over_0] {OWN}"


def test_calls_of_one_named_window_are_one_node_and_other_windows_stand_on_it() -> None:
    lines = shop_plan(
        "SELECT SUM(amount) OVER w AS s, COUNT(*) OVER w + 1 AS n, LAG(price, 1) OVER (w2 ORDER BY ts) AS l FROM orders"
        " WINDOW w AS (PARTITION BY item ORDER BY ts), w2 AS (PARTITION BY customer)"
    )
    assert lines == [
        "Project [over_0 AS s, +(over_1, 1) AS n, over_2 AS l]",
        f"  Over partition=[customer] order=[ts ASC] frame=[rows, all before] calls=[LAG(price, 1) AS over_2] {OWN}",
        "    Over partition=[item] order=[ts ASC] frame=[range, all before] calls=[SUM(amount) AS over_0, COUNT(*) AS over_1]"
        f" {OWN}",
        "      Scan orders (rocketmq)",
    ]  # fmt: skip


def test_over_stands_on_a_grouping() -> None:
    lines = shop_plan(
        "SELECT item, SUM(SUM(amount)) OVER (ORDER BY TUMBLE_ROWTIME(ts, INTERVAL '1' HOUR)) AS s FROM orders"
        " GROUP BY item, TUMBLE(ts, INTERVAL '1' HOUR)"
    )
    assert lines[1].startswith("  Over partition=[] order=[window_time ASC]")
    assert lines[2].startswith("    WindowAggregate TUMBLE(ts, 3600000 ms) keys=[item]")


def test_over_an_input_that_changes_by_a_time_that_is_no_attribute_changes_as_well() -> None:
    lines = shop_plan(
        "SELECT AVG(price) OVER (PARTITION BY item ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS a"
        " FROM (SELECT item, price, MAX(ts) AS ts FROM orders GROUP BY item, price)"
    )
    assert lines[1].endswith(CHANGES)


def test_a_limit_or_ascending_time_makes_a_sort_possible() -> None:
    assert shop_plan("SELECT id, price * 2 AS double_ FROM orders ORDER BY double_ DESC NULLS LAST, item, 1 LIMIT 3 OFFSET 2") == [
        "Project [id, double_] [retract]",
        f"  Sort [double_ DESC NULLS LAST, order_key ASC, id ASC] limit=3 offset=2 {CHANGES}",
        "    Project [id, *(price, 2) AS double_, item AS order_key]",
        "      Scan orders (rocketmq)",
    ]  # fmt: skip
    assert shop_plan("SELECT id, ts FROM orders ORDER BY ts")[0] == f"Sort [ts ASC] {OWN}"
    assert (
        shop_plan("SELECT id FROM orders OFFSET 1 ROW FETCH NEXT 5 ROWS ONLY")[0] == f"Sort [] limit=5 offset=1 {OWN}"
    )
    assert shop_plan("SELECT id FROM orders FETCH FIRST ROW ONLY")[0] == f"Sort [] limit=1 {OWN}"


def test_the_order_may_be_by_an_aggregate_or_a_place_that_is_not_shown() -> None:
    lines = shop_plan("SELECT item FROM orders GROUP BY item ORDER BY SUM(amount) DESC, item LIMIT 3")
    assert lines[:3] == [
        "Project [item] [retract]",
        f"  Sort [order_key DESC, item ASC] limit=3 {CHANGES}",
        "    Project [item, aggregate_0 AS order_key] [retract]",
    ]


def test_where_may_bound_a_place_of_its_own_select_by_the_alias() -> None:
    ranked = "SELECT item, RANK() OVER (PARTITION BY item ORDER BY price) AS place_ FROM orders"
    assert plan_of(f"{ranked} WHERE amount > 1 AND place_ <= 2") == plan_of(
        f"{ranked} WHERE amount > 1 QUALIFY RANK() OVER (PARTITION BY item ORDER BY price) <= 2"
    )


def test_columns_of_a_sub_query_without_an_alias_keep_the_names_that_it_read_them_by() -> None:
    lines = shop_plan(
        "SELECT *, ROW_NUMBER() OVER (PARTITION BY o.item ORDER BY y.id) AS n FROM (SELECT o.item, y.id FROM orders o,"
        " payments y WHERE o.id = y.order_id) WHERE n <= 1"
    )
    assert lines[1] == f"  Rank ROW_NUMBER 1 partition=[item] order=[id ASC] AS over_0 {CHANGES}"
    assert shop_error("SELECT o.item FROM (SELECT o.item FROM orders o) AS t").name == "SQL_UNKNOWN_COLUMN"


def test_qualify_filters_places_in_the_query_itself() -> None:
    assert shop_plan(
        "SELECT item, price FROM orders WHERE amount > 1 QUALIFY RANK() OVER (PARTITION BY item ORDER BY price) <= 2 AND id > 3"
    ) == [
        "Project [item, price] [retract]",
        "  Filter >(id, 3) [retract]",
        f"    Rank RANK 1..2 partition=[item] order=[price ASC] {CHANGES}",
        "      Filter >(amount, 1)",
        "        Scan orders (rocketmq)",
    ]


def test_a_union_is_sorted_by_its_columns() -> None:
    lines = shop_plan("SELECT id FROM orders UNION ALL SELECT order_id FROM payments ORDER BY id DESC LIMIT 1")
    assert lines[0].startswith("Sort [id DESC] limit=1")


def test_a_batch_job_may_sort_by_anything() -> None:
    script = (
        "CREATE TABLE out_ (id BIGINT) WITH ('connector' = 'print'); INSERT INTO out_ SELECT id FROM orders ORDER BY id"
    )
    assert shop_error(script).name == "SQL_UNSUPPORTED"
    plan = SqlSession().compile(f"{SHOP} SET 'execution.runtime-mode' = 'batch'; {script}")[-1]
    assert isinstance(plan, JobPlan)
    assert any("Sort [id ASC]" in line for line in explain_sink(plan.sinks[0]))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("LEAD(amount, 2, 0) OVER (PARTITION BY item ORDER BY ts)",
         "Over whole partition=[item] order=[ts ASC] frame=[rows, all before] calls=[LEAD(amount, 2, 0) AS over_0]"),
        ("ROW_NUMBER() OVER (ORDER BY price DESC)",
         "Over whole partition=[] order=[price DESC] frame=[rows, all before] calls=[ROW_NUMBER() AS over_0]"),
        ("SUM(amount) OVER (PARTITION BY item)",
         "Over whole partition=[item] order=[] frame=[range, all before] calls=[SUM(amount) AS over_0]"),
        ("SUM(amount) OVER (ORDER BY amount RANGE BETWEEN 2 PRECEDING AND 3 FOLLOWING)",
         "Over whole partition=[] order=[amount ASC] frame=[range, 2 before, 3 behind] calls=[SUM(amount) AS over_0]"),
        ("SUM(amount) OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
         "Over whole partition=[] order=[ts ASC] frame=[rows, -1 rows before, all behind] calls=[SUM(amount) AS over_0]"),
        ("SUM(amount) OVER (ORDER BY ts)",
         "Over partition=[] order=[ts ASC] frame=[range, all before] calls=[SUM(amount) AS over_0]"),
    ],
)  # fmt: skip
def test_a_batch_job_looks_at_whole_partitions_where_it_has_to(call: str, line: str) -> None:
    plan = SqlSession().compile(f"{SHOP} SET 'execution.runtime-mode' = 'batch'; SELECT id, {call} FROM orders")[-1]
    assert isinstance(plan, QueryPlan)
    (over,) = [shown for shown in explain_node(plan.query) if "Over " in shown]
    assert over.strip() == f"{line} {OWN}"


@pytest.mark.parametrize(
    ("call", "name", "said"),
    [
        ("SUM(amount) OVER (ORDER BY item RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)", "SQL_TYPE", "one column"),
        ("SUM(amount) OVER (ORDER BY ts RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)", "SQL_TYPE", "a number needs a number"),
        ("SUM(amount) OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING)", "SQL_SYNTAX", "before it begins"),
        ("SUM(amount) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED FOLLOWING AND 1 FOLLOWING)", "SQL_SYNTAX", "not the other way"),
        ("NTILE(0) OVER (ORDER BY ts)", "SQL_TYPE", "1 or more"),
        ("NTILE(amount) OVER (ORDER BY ts)", "SQL_TYPE", "1 or more"),
        ("LEAD(amount, amount) OVER (ORDER BY ts)", "SQL_TYPE", "0 or more"),
        ("LEAD(amount) OVER (PARTITION BY item)", "SQL_UNSUPPORTED", "ORDER BY"),
    ],
)  # fmt: skip
def test_a_batch_job_refuses_frames_that_cannot_be(call: str, name: str, said: str) -> None:
    error = shop_error(f"SET 'execution.runtime-mode' = 'batch'; SELECT {call} FROM orders")
    assert error.name == name
    assert said in error.message


@pytest.mark.parametrize(
    ("select", "name", "place", "said"),
    [
        ("SELECT id, ROW_NUMBER() OVER (ORDER BY price) AS n FROM orders", "SQL_UNSUPPORTED", (1, 12, 34), "WHERE rn <= 10"),
        (f"SELECT item FROM {RANKED} WHERE rn >= 3", "SQL_UNSUPPORTED", (1, 29, 61), "no filter bounds them"),
        ("SELECT SUM(amount) OVER (PARTITION BY item) FROM orders", "SQL_UNSUPPORTED", (1, 25, 19), "ORDER BY"),
        ("SELECT SUM(amount) OVER (ORDER BY item) FROM orders", "SQL_TIME_ATTRIBUTE", (1, 25, 15), "Time attributes here: ts, p."),
        ("SELECT SUM(amount) OVER (ORDER BY ts DESC) FROM orders", "SQL_TIME_ATTRIBUTE", (1, 25, 18), "DESC"),
        ("SELECT SUM(amount) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM orders", "SQL_UNSUPPORTED", (1, 67, 11), "CURRENT ROW"),
        ("SELECT SUM(amount) OVER (ORDER BY ts ROWS 'x' PRECEDING) FROM orders", "SQL_TYPE", (1, 43, 13), "a number"),
        ("SELECT LEAD(amount) OVER (ORDER BY ts) FROM orders", "SQL_UNSUPPORTED", (1, 8, 31), "'batch' looks at whole"),
        ("SELECT UPPER(item) OVER (ORDER BY ts) FROM orders", "SQL_UNKNOWN_FUNCTION", (1, 8, 5), "cannot stand before OVER"),
        ("SELECT SUM(amount) OVER w FROM orders", "SQL_SYNTAX", (1, 25, 1), "no window"),
        ("SELECT id FROM orders WHERE ROW_NUMBER() OVER (ORDER BY ts) = 1", "SQL_SYNTAX", (1, 29, 31), "SELECT"),
        ("SELECT ROW_NUMBER() FROM orders", "SQL_SYNTAX", (1, 8, 12), "OVER (PARTITION BY"),
        ("SELECT id FROM orders ORDER BY price", "SQL_UNSUPPORTED", (1, 32, 5), "LIMIT"),
        ("SELECT id FROM orders ORDER BY 2 LIMIT 1", "SQL_SYNTAX", (1, 32, 1), "no column 2"),
        ("SELECT id FROM orders LIMIT x", "SQL_SYNTAX", (1, 29, 1), "whole number"),
    ],
)  # fmt: skip
def test_what_has_no_end_is_refused_at_its_place(
    select: str, name: str, place: tuple[int, int, int], said: str
) -> None:
    error = shop_error(select)
    assert error.name == name
    assert said in f"{error.message} {error.remedy}"
    assert error.position is not None
    assert (error.position.line - SHOP.count("\n"), error.position.column, error.position.length) == place
