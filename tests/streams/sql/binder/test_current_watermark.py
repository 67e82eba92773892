"""CURRENT_WATERMARK bound: which rows it is asked of, what may be asked for, and what reads it."""

from __future__ import annotations

import pytest
from shop import SHOP, plan_of, shop_error, shop_plan

from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.session.compiler import SqlSession


def test_the_watermark_is_a_column_of_the_rows_that_are_read() -> None:
    lines = shop_plan("SELECT id, CURRENT_WATERMARK(ts) FROM orders WHERE ts > CURRENT_WATERMARK(ts) AND amount > 1")
    assert [line.strip().split(" [append")[0] for line in lines] == [
        "Project [id, current_watermark AS EXPR$1]",
        "Filter AND(>(ts, current_watermark), >(amount, 1))",
        "Watermarked AS current_watermark",
        "Scan orders (rocketmq)",
    ]


def test_the_watermark_has_the_type_of_its_time_and_may_be_null() -> None:
    field = plan_of("SELECT CURRENT_WATERMARK(ts) AS w FROM orders").schema.find("w")
    assert field is not None
    assert (str(field.type), field.rowtime) == ("TIMESTAMP(3)", False)
    instant = SHOP + (
        "CREATE TABLE logs (at TIMESTAMP_LTZ(3), WATERMARK FOR at AS at) WITH ('connector'='rocketmq', 'topic'='l');"
        "SELECT CURRENT_WATERMARK(at) AS w FROM logs"
    )
    plan = SqlSession().compile(instant)[-1]
    assert isinstance(plan, QueryPlan)
    assert str(plan.query.schema.fields[0].type) == "TIMESTAMP_LTZ(3)"


def test_a_star_does_not_show_the_watermark_and_the_time_stays_an_event_time() -> None:
    node = plan_of("SELECT * FROM orders WHERE ts > CURRENT_WATERMARK(ts)")
    assert node.schema.names == plan_of("SELECT * FROM orders").schema.names
    window = "TUMBLE(TABLE fresh, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    lines = shop_plan(
        f"WITH fresh AS (SELECT * FROM orders WHERE ts > CURRENT_WATERMARK(ts))"
        f" SELECT window_end, COUNT(*) FROM TABLE({window}) GROUP BY window_start, window_end"
    )
    assert any("WindowAggregate" in line for line in lines)
    assert any("Watermarked" in line for line in lines)


def test_the_watermark_of_a_join_is_asked_by_any_time_of_its_rows() -> None:
    lines = shop_plan(
        "SELECT o.id, CURRENT_WATERMARK(p.paid) AS w FROM orders o JOIN payments p ON o.id = p.order_id"
        " AND p.paid BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"
    )
    assert sum("Watermarked" in line for line in lines) == 1


@pytest.mark.parametrize(
    "call", ["CURRENT_WATERMARK()", "CURRENT_WATERMARK(id)", "CURRENT_WATERMARK(p)", "CURRENT_WATERMARK(ts, ts)"]
)
def test_what_is_no_event_time_has_no_watermark(call: str) -> None:
    error = shop_error(f"SELECT {call} FROM orders")
    assert error.name == "SQL_TIME_ATTRIBUTE"
    assert "CURRENT_WATERMARK(ts)" in str(error.remedy)
