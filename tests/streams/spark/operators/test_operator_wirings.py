"""Plans wired to operators of ours: which columns they get, by what rows are spread, how long their tables live."""

from __future__ import annotations

import pytest

from millstream.streams.operators.joins.not_in_joining import NotInJoiner
from millstream.streams.operators.joins.temporal_joining import TemporalJoiner
from millstream.streams.operators.operator import (
    END_OF_TIME_US,
    INSERT,
    UPDATE_AFTER,
    BatchTimes,
    Changes,
    OperatorOutput,
    Row,
)
from millstream.streams.operators.set_operations import SetOperator
from millstream.streams.operators.state import OperatorState
from millstream.streams.plan.expressions import Call
from millstream.streams.plan.joins import Join, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import Node, QueryPlan, Scan, inputs_of
from millstream.streams.plan.ordering import Rank
from millstream.streams.spark.operators.wiring import Wiring
from millstream.streams.spark.operators.wirings import wiring_of
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE orders (id BIGINT, price DECIMAL(10, 2), currency STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'rocketmq', 'topic' = 'o');
CREATE TABLE rates (currency STRING, rate DECIMAL(10, 2), since TIMESTAMP(3), WATERMARK FOR since AS since,
  PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'upsert-rocketmq', 'topic' = 'r');
CREATE TABLE bags (id BIGINT, counts MAP<STRING, INT>) WITH ('connector' = 'rocketmq', 'topic' = 'b');
"""


def found(query: str, kind: type[Node]) -> Node:
    """The first node of that kind in the plan of a query."""
    plan = SqlSession(nameserver="localhost:9876").compile(TABLES + query)[-1]
    assert isinstance(plan, QueryPlan)
    waiting = [plan.query]
    while waiting:
        node = waiting.pop()
        if isinstance(node, kind):
            return node
        waiting += inputs_of(node)
    raise AssertionError(f"no {kind.__name__}")


def table_of(out: OperatorOutput) -> list[Row]:
    """The rows that were said and not taken back."""
    rows: list[Row] = []
    for kind, row in out.changes():
        if kind in (INSERT, UPDATE_AFTER):
            rows.append(row)
        else:
            rows.remove(row)
    return rows


def wired(node: Node) -> Wiring:
    wiring = wiring_of(node)
    assert wiring is not None
    return wiring


def test_a_temporal_join_meets_its_versions_by_key() -> None:
    node = found(
        "SELECT id, rate FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency",
        TemporalJoin,
    )
    wiring = wired(node)
    assert isinstance(wiring.make(), TemporalJoiner)
    assert [wire.keys for wire in wiring.inputs] == [(0,), (0,)]
    assert str(wiring.inputs[0].columns[0]) == "currency"
    assert len(wiring.inputs[0].columns) == 1 + len(node.left.schema.fields)  # type: ignore[union-attr]


def test_not_in_over_columns_that_may_be_null_meets_in_one_bucket() -> None:
    node = found("SELECT id FROM orders WHERE price NOT IN (SELECT rate FROM rates)", Join)
    wiring = wired(node)
    assert isinstance(wiring.make(), NotInJoiner)
    assert [wire.keys for wire in wiring.inputs] == [(), ()]
    assert [len(wire.columns) for wire in wiring.inputs] == [1 + len(below.schema.fields) for below in inputs_of(node)]


def test_a_constant_that_is_not_in_a_sub_query_is_a_key_as_well() -> None:
    node = found("SELECT id FROM orders WHERE 1.5 NOT IN (SELECT rate FROM rates)", Join)
    assert isinstance(node, Join)
    assert node.condition is None
    assert len(node.keys) == 1


@pytest.mark.parametrize(
    ("order", "bound", "kept"),
    [
        ("ts DESC", "place = 1", "newer"),
        ("ts DESC", "place <= 2", "older, newer"),
        ("ts DESC, id", "place = 1", "older"),
        ("ts", "place = 1", "older"),
        ("price DESC", "place = 1", "older"),
    ],
)
def test_of_rows_of_one_time_the_last_row_of_a_key_is_the_one_that_came_last(order: str, bound: str, kept: str) -> None:
    node = found(
        f"SELECT id, price, currency, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY {order}) AS place FROM orders)"
        f" WHERE {bound}",
        Rank,
    )
    operator, out = wired(node).make(), OperatorOutput()
    operator.open(OperatorState())
    rows = [(1, 5, currency, 1_000) for currency in ("older", "newer")]
    for row in rows:
        operator.process(0, Changes([row]), BatchTimes(), out)
    # The first row by event time alone waits for the watermark.
    operator.advance(BatchTimes(watermark_us=END_OF_TIME_US), out)
    names = node.schema.names
    shown = [row[names.index("currency")] for row in table_of(out)]
    assert ", ".join(shown) == kept


VERSIONS = """
CREATE TABLE events (kind STRING, currency STRING, region STRING, rate INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 'e');
CREATE VIEW versions AS SELECT currency, region, rate, ts AS since FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ts DESC) AS place FROM events WHERE kind = 'rate')
  WHERE place = 1;
"""


def test_versions_that_a_deduplication_makes_are_all_its_rows() -> None:
    node = found(
        VERSIONS + "SELECT id, rate FROM orders o JOIN versions FOR SYSTEM_TIME AS OF o.ts AS r"
        " ON o.currency = r.currency",
        TemporalJoin,
    )
    below = wired(node).inputs[1].node
    while not isinstance(below, Scan):
        assert not isinstance(below, Rank)
        (below,) = inputs_of(below)


def test_what_is_equal_beside_the_primary_key_is_a_condition() -> None:
    """A version of a key ends when its other columns change."""
    node = found(
        VERSIONS + "SELECT id, rate FROM orders o JOIN versions FOR SYSTEM_TIME AS OF o.ts AS r"
        " ON o.currency = r.currency AND r.region = o.currency",
        TemporalJoin,
    )
    wiring = wired(node)
    assert [wire.keys for wire in wiring.inputs] == [(0,), (0,)]
    assert isinstance(wiring.condition, Call)
    assert wiring.condition.function == "="


@pytest.mark.parametrize(("columns", "keys"), [("id", (0,)), ("id, counts", (0,)), ("counts", ())])
def test_a_set_operation_spreads_rows_by_all_columns_that_can_be_hashed(columns: str, keys: tuple[int, ...]) -> None:
    node = found(f"SELECT {columns} FROM bags EXCEPT ALL SELECT {columns} FROM bags", SetOperation)
    wiring = wired(node)
    assert isinstance(wiring.make(), SetOperator)
    assert [wire.keys for wire in wiring.inputs] == [keys, keys]


@pytest.mark.parametrize(
    ("query", "lives_ms"),
    [
        ("SELECT /*+ STATE_TTL('o' = '1 d', 'b' = '2 s') */ o.id FROM orders o JOIN bags b ON o.id = b.id", (
            ("left", 86_400_000),
            ("right", 2_000),
        )),
        ("SELECT /*+ STATE_TTL('b' = '0 s') */ o.id FROM orders o JOIN bags b ON o.id = b.id", (("right", 0),)),
        ("SELECT /*+ STATE_TTL('orders' = '3 s') */ currency, COUNT(*) FROM orders GROUP BY currency", (("groups", 3_000),)),
        ("SELECT currency, COUNT(*) FROM orders GROUP BY currency", ()),
    ],
)  # fmt: skip
def test_a_ttl_hint_reaches_the_tables_of_its_operator(query: str, lives_ms: tuple[tuple[str, int], ...]) -> None:
    plan = SqlSession(nameserver="localhost:9876").compile(TABLES + query)[-1]
    assert isinstance(plan, QueryPlan)
    node: Node = plan.query
    while wiring_of(node) is None:
        (node,) = inputs_of(node)
    assert wired(node).lives_ms == lives_ms
