"""Operators of ours on a real Spark: changing results, event time that is data, and stages behind one another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, Topic, compiled, filled_topic

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import Node, QueryPlan
from millstream.streams.plan.ordering import OrderKey, Rank

pytestmark = pytest.mark.spark


TopicMaker = Callable[..., AbstractContextManager[Topic]]

TABLE = """
CREATE TABLE scores (player STRING, game STRING, points BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 't');
SELECT player, game, points FROM scores WHERE points > 0
"""
SCORES = [(f"p{number % 7}", f"g{number % 3}", number * 37 % 401) for number in range(400)]


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    bodies = [
        (number % 2, json.dumps({"player": player, "game": game, "points": points}).encode())
        for number, (player, game, points) in enumerate(SCORES)
    ]
    with filled_topic(tmp_path_factory.mktemp("scores"), bodies, 2) as topic:
        yield topic


def best_of_each(rank: int, node: Node) -> Node:
    """The best scores of each game, then the best of those of each player."""
    top = Rank(node, ("game",), (OrderKey("points", ascending=False),), rank)
    return Rank(top, ("player",), (OrderKey("points", ascending=False),), 1, rank_name="place")


def run(spark: SparkSession, topic: Topic, *, name: str, settings: dict[str, str]) -> Counter[tuple[object, ...]]:
    """The table that the changes of the query add up to."""
    plan = compiled(TABLE, topic.nameserver)
    assert isinstance(plan, QueryPlan)
    collected = Collected()
    found: Counter[tuple[object, ...]] = Counter()

    def take(result: object) -> None:
        collected.take(result)  # type: ignore[arg-type]
        rows, kinds = result.rows, result.kinds  # type: ignore[attr-defined]
        for row, kind in zip(rows, kinds, strict=True):
            found[row] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1

    runner = JobRunner(spark, nameserver=topic.nameserver, checkpoint_root=Path(topic.directory) / "checkpoints")
    query = QueryPlan(best_of_each(5, plan.query), {**plan.settings, **settings})
    job = runner.start(query, name=name, bounded=True, on_rows=take)
    assert job.wait(LIMIT_S), job.progress()
    assert min(found.values()) >= 0
    return +found


def expected() -> Counter[tuple[object, ...]]:
    games: dict[str, list[tuple[str, str, int]]] = {}
    for row in SCORES:
        if row[2] > 0:
            games.setdefault(row[1], []).append(row)
    tops = [row for rows in games.values() for row in sorted(rows, key=lambda row: -row[2])[:5]]
    best: dict[str, tuple[str, str, int]] = {}
    for row in tops:
        if row[0] not in best or best[row[0]][2] < row[2]:
            best[row[0]] = row
    return Counter((player, points, 1) for player, _, points in best.values())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("one", {}),
        ("many", {"millstream.max-rows-per-trigger": "60"}),
        ("batch", {"execution.runtime-mode": "batch"}),
    ],
)
def test_ranks_of_ranks_are_the_same_for_every_cut_and_in_batch(
    name: str, settings: dict[str, str], spark: SparkSession, scores: Topic
) -> None:
    found = run(spark, scores, name=f"ranks-{name}", settings=settings)
    assert Counter((row[0], row[2], row[3]) for row in found.elements()) == expected()
