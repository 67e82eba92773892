"""OVER and MATCH_RECOGNIZE on a real Spark: the same for every cut into micro-batches and in batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, Topic, compiled, filled_topic

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.nodes import Node, QueryPlan
from millstream.streams.plan.ordering import OrderKey
from millstream.streams.plan.patterns import Match, Quantified, Sequence, Variable
from millstream.streams.plan.types import BIGINT, BOOLEAN, STRING

pytestmark = pytest.mark.spark


TABLE = """
CREATE TABLE prices (symbol STRING, price BIGINT, at BIGINT, ts AS TO_TIMESTAMP_LTZ(at, 3),
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'rocketmq', 'topic' = 't');
"""
# In each queue times go up; both together are out of order by less than the watermark's delay.
PRICES = [(f"s{number % 3}", number * number * 7 % 101, 1_000_000 + number * 250) for number in range(300)]
CUTS = [
    ("one", {}),
    ("many", {"millstream.max-rows-per-trigger": "60"}),
    ("batch", {"execution.runtime-mode": "batch"}),
]


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    bodies = [
        (number % 2, json.dumps({"symbol": symbol, "price": price, "at": at}).encode())
        for number, (symbol, price, at) in enumerate(PRICES)
    ]
    with filled_topic(tmp_path_factory.mktemp("prices"), bodies, 2) as topic:
        yield topic


def rows_of(spark: SparkSession, topic: Topic, query: QueryPlan, name: str) -> Counter[tuple[object, ...]]:
    collected = Collected()
    runner = JobRunner(spark, nameserver=topic.nameserver, checkpoint_root=Path(topic.directory) / "checkpoints")
    job = runner.start(query, name=name, bounded=True, on_rows=collected.take)
    assert job.wait(LIMIT_S), job.progress()
    return Counter(row for rows in collected.rows.values() for row in rows)


def plan_of(topic: Topic, select: str, settings: dict[str, str]) -> QueryPlan:
    plan = compiled(TABLE + select, topic.nameserver)
    assert isinstance(plan, QueryPlan)
    return QueryPlan(plan.query, {**plan.settings, **settings})


def by_symbol() -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for symbol, price, at in PRICES:
        found.setdefault(symbol, []).append((at, price))
    return found


@pytest.mark.parametrize(("name", "settings"), CUTS)
def test_each_row_tells_of_those_before_it(
    name: str, settings: dict[str, str], spark: SparkSession, prices: Topic
) -> None:
    select = """
    SELECT symbol, at, SUM(price) OVER w, MAX(price) OVER w, LAG(price) OVER (PARTITION BY symbol ORDER BY ts)
    FROM prices WINDOW w AS (PARTITION BY symbol ORDER BY ts RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW)
    """
    wanted: Counter[tuple[object, ...]] = Counter()
    for symbol, rows in by_symbol().items():
        for number, (at, _) in enumerate(rows):
            frame = [price for time, price in rows[: number + 1] if time >= at - 3000]
            wanted[(symbol, at, sum(frame), max(frame), rows[number - 1][1] if number else None)] += 1
    assert rows_of(spark, prices, plan_of(prices, select, settings), f"over-{name}") == wanted


def test_a_micro_batch_of_many_rows_is_reckoned_by_column(spark: SparkSession, prices: Topic) -> None:
    select = """
    SELECT symbol, at, SUM(price) OVER so_far, COUNT(*) OVER so_far, AVG(price) OVER four
    FROM prices WINDOW so_far AS (PARTITION BY symbol ORDER BY ts),
        four AS (PARTITION BY symbol ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)
    """
    wanted: Counter[tuple[object, ...]] = Counter()
    for symbol, rows in by_symbol().items():
        values = [price for _, price in rows]
        for number, (at, _) in enumerate(rows, start=1):
            four = values[max(0, number - 4) : number]
            wanted[(symbol, at, sum(values[:number]), number, sum(four) // len(four))] += 1
    assert rows_of(spark, prices, plan_of(prices, select, {}), "over-by-column") == wanted


def call(function: str, *arguments: Expression, of: object = BIGINT) -> Call:
    return Call(function, arguments, BOOLEAN if of is bool else BIGINT)


def dips(node: Node) -> Node:
    """A price that falls at least twice and then rises above 50: the lowest price, and how many rows fell."""
    price = Column("price", BIGINT)
    last = call("MATCH_LAST", price, Literal("D", STRING), Literal(0, BIGINT))
    before = call("MATCH_PREV", price, Literal(1, BIGINT))
    defines: tuple[tuple[str, Expression], ...] = (
        ("D", call("<", last, before, of=bool)),
        (
            "U",
            call(
                ">",
                call("MATCH_LAST", price, Literal("U", STRING), Literal(0, BIGINT)),
                Literal(50, BIGINT),
                of=bool,
            ),
        ),
    )
    measures: tuple[tuple[str, Expression], ...] = (
        ("lowest", last),
        ("fell", call("MATCH_AGGREGATE", Literal("COUNT", STRING), Literal("D", STRING))),
    )
    down = Quantified(Variable("D"), 2, None)
    order = (OrderKey("ts"),)
    return Match(node, ("symbol",), order, Sequence((down, Variable("U"))), defines, measures)


@pytest.mark.parametrize(("name", "settings"), CUTS)
def test_matches_are_told_with_their_measures(
    name: str, settings: dict[str, str], spark: SparkSession, prices: Topic
) -> None:
    plan = plan_of(prices, "SELECT symbol, price, ts FROM prices", settings)
    wanted: Counter[tuple[object, ...]] = Counter()
    for symbol, rows in by_symbol().items():
        values = [price for _, price in rows]
        start = 1
        while start < len(values):
            end = start
            while end < len(values) and values[end] < values[end - 1]:
                end += 1
            # The longest fall that a price above 50 follows; the row after a fall may end a shorter one.
            last = next((one for one in range(end, start + 1, -1) if one < len(values) and values[one] > 50), None)
            if last is None:
                start += 1
                continue
            wanted[(symbol, values[last - 1], last - start)] += 1
            start = last + 1
    assert wanted.total() > 20
    query = QueryPlan(dips(plan.query), plan.settings)
    assert rows_of(spark, prices, query, f"match-{name}") == wanted
