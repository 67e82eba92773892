"""Queries whose rows change, in one statement set: the tables they add up to are those that SQLite makes of all rows."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Topic, compiled, filled_topic

from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan

pytestmark = pytest.mark.spark


SCORES = [(f"p{number % 7}", f"g{number % 3}", number * 37 % 401) for number in range(400)]

TABLE = """
CREATE TABLE scores (player STRING, game STRING, points BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 't');
"""

TOP = "SELECT game, player, points, ROW_NUMBER() OVER (PARTITION BY game ORDER BY points DESC) AS place FROM scores"

# By name: the columns of the sink, and a query that SQLite reads as well.
QUERIES = {
    "grouped": (
        "game STRING, n BIGINT, total BIGINT, best BIGINT, players BIGINT",
        "SELECT game, COUNT(*), SUM(points), MAX(points), COUNT(DISTINCT player) FROM scores GROUP BY game",
    ),
    "of_groups": (
        "most BIGINT, players BIGINT",
        "SELECT MAX(n), COUNT(*) FROM (SELECT player, COUNT(*) AS n FROM scores GROUP BY player) AS c",
    ),
    "best_players": (
        "player STRING, total BIGINT",
        "SELECT player, SUM(points) FROM scores GROUP BY player HAVING SUM(points) > 11400",
    ),
    "filtered": (
        "game STRING, high BIGINT, low BIGINT",
        "SELECT game, COUNT(*) FILTER (WHERE points > 300), MIN(points) FILTER (WHERE points > 9) FROM scores"
        " GROUP BY game",
    ),
    "top": (
        "game STRING, player STRING, points BIGINT, place BIGINT",
        f"SELECT game, player, points, place FROM ({TOP}) AS t WHERE place <= 3",
    ),
    "joined": (
        "player STRING, points BIGINT, other BIGINT",
        "SELECT a.player, a.points, b.points FROM scores AS a JOIN scores AS b"
        " ON a.player = b.player AND a.points = b.points + 1",
    ),
    "left_joined": (
        "player STRING, points BIGINT, other BIGINT",
        "SELECT a.player, a.points, b.points FROM (SELECT * FROM scores WHERE points < 20) AS a LEFT JOIN"
        " (SELECT * FROM scores WHERE points < 30) AS b ON a.player = b.player AND a.points < b.points",
    ),
    "best_of_game": (
        "player STRING, points BIGINT, best BIGINT",
        "SELECT s.player, s.points, m.best FROM scores AS s JOIN"
        " (SELECT game, MAX(points) AS best FROM scores GROUP BY game) AS m ON s.game = m.game WHERE s.points + 9 > m.best",
    ),
    "existing": (
        "points BIGINT",
        "SELECT points FROM scores AS a WHERE points < 60 AND EXISTS"
        " (SELECT 1 FROM scores AS b WHERE b.player = a.player AND b.points = a.points + 1)",
    ),
    "missing": (
        "points BIGINT",
        "SELECT points FROM scores AS a WHERE points < 60 AND NOT EXISTS"
        " (SELECT 1 FROM scores AS b WHERE b.player = a.player AND b.points = a.points + 1)",
    ),
    "united": ("name STRING", "SELECT player FROM scores WHERE points < 5 UNION SELECT game FROM scores"),
    "distinct_names": ("name STRING", "SELECT DISTINCT player FROM scores WHERE points > 380"),
}


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    bodies = [
        (number % 2, json.dumps(dict(zip(("player", "game", "points"), row, strict=True))).encode())
        for number, row in enumerate(SCORES)
    ]
    with filled_topic(tmp_path_factory.mktemp("changing"), bodies, 2) as topic:
        yield topic


@pytest.fixture(scope="module")
def expected() -> dict[str, Counter[tuple[Any, ...]]]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE scores (player TEXT, game TEXT, points INTEGER)")
    database.executemany("INSERT INTO scores VALUES (?, ?, ?)", SCORES)
    found = {name: Counter(database.execute(query).fetchall()) for name, (_, query) in QUERIES.items()}
    database.close()
    assert all(found.values())
    return found


class Tables:
    """The tables that the changes of each sink add up to; no row goes that was not there."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[tuple[Any, ...]]] = {}

    def take(self, result: ResultRows) -> None:
        table = self.rows.setdefault(result.sink, Counter())
        for row, kind in zip(result.rows, result.kinds or [RowKind.INSERT] * len(result.rows), strict=True):
            if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                table[row] += 1
            else:
                assert table[row] > 0, f"{row} goes from {result.sink} and was not there"
                table[row] -= 1


@pytest.mark.parametrize(
    "settings",
    [{"millstream.max-rows-per-trigger": "200"}, {"execution.runtime-mode": "batch"}],
    ids=["micro-batches", "batch"],
)
def test_changing_queries_add_up_to_what_all_rows_give(
    settings: dict[str, str], spark: SparkSession, scores: Topic, expected: dict[str, Counter[tuple[Any, ...]]]
) -> None:
    sinks = "".join(
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'print');\n" for name, (columns, _) in QUERIES.items()
    )
    inserts = "".join(f"INSERT INTO {name} {query};\n" for name, (_, query) in QUERIES.items())
    plan = compiled(f"{TABLE}{sinks}BEGIN STATEMENT SET;\n{inserts}END;", scores.nameserver)
    assert isinstance(plan, JobPlan)
    tables = Tables()
    runner = JobRunner(spark, nameserver=scores.nameserver, checkpoint_root=Path(scores.directory) / "checkpoints")
    job = runner.start(
        JobPlan(plan.sinks, {**plan.settings, **settings}),
        name="-".join(["changing", *settings.values()]),
        bounded=True,
        on_rows=tables.take,
    )
    assert job.wait(LIMIT_S), job.progress()
    assert {name: +table for name, table in tables.rows.items()} == expected
