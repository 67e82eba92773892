"""Tables of a shop, whose streams the tests of joins, groupings and ranks use."""

from __future__ import annotations

from compiling import planned, refused

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import Node, QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["SHOP", "plan_of", "shop_error", "shop_plan"]

SHOP = """
CREATE TABLE orders (
  id BIGINT, customer BIGINT, item STRING, price DECIMAL(10, 2), amount INT, tags ARRAY<STRING>,
  place ROW<city STRING, zip INT>, extra MAP<STRING, INT>, ts TIMESTAMP(3), p AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'orders');
CREATE TABLE payments (
  id BIGINT, order_id BIGINT, method STRING, paid TIMESTAMP(3), p AS PROCTIME(),
  WATERMARK FOR paid AS paid
) WITH ('connector' = 'rocketmq', 'topic' = 'payments');
CREATE TABLE rates (
  item STRING, rate DECIMAL(10, 4), valid TIMESTAMP(3), WATERMARK FOR valid AS valid,
  PRIMARY KEY (item) NOT ENFORCED
) WITH ('connector' = 'rocketmq', 'topic' = 'rates');
"""


def shop_plan(select: str) -> list[str]:
    """The plan of one SELECT as text."""
    return planned(SHOP, select)


def plan_of(select: str) -> Node:
    """The node of one SELECT."""
    plan = SqlSession().compile(SHOP + select)[-1]
    assert isinstance(plan, QueryPlan)
    return plan.query


def shop_error(select: str) -> SqlError:
    """The error of a SELECT that is refused."""
    return refused(select, after=SHOP)
