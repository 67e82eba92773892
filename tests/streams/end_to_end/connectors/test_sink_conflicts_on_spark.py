"""Rows of several keys that fall on one row of a table: whatever changes, the table has one for each key there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import bounded_run, filled_topic
from test_database_jobs import execute

from millstream.streams.errors import JobError

pytestmark = pytest.mark.spark

CUT = "SET 'millstream.max-rows-per-trigger' = '3';"
SCRIPT = """
CREATE TABLE moves (player STRING, team STRING, place BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE teams (team STRING, player STRING, moves BIGINT, PRIMARY KEY (team) NOT ENFORCED)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{directory}/shop.db', 'table-name' = 'teams');
CREATE VIEW latest AS SELECT player, LAST_VALUE(team) AS team, COUNT(*) AS moves FROM moves GROUP BY player;
INSERT INTO teams SELECT team, player, moves FROM latest """

MOVES = [(f"p{number * 7 % 10}", f"t{number * number % 13}") for number in range(36)]
"""Ten players among the teams t0, t1, t3, t4, t9, t10 and t12: most leave a team in which others stay."""


def latest() -> dict[str, tuple[str, int]]:
    """The team and the number of moves of each player."""
    return {player: (team, sum(one == player for one, _ in MOVES)) for player, team in MOVES}


def shown(spark: SparkSession, directory: Path, clause: str) -> list[tuple[str, str, int]]:
    """What the table of the database holds when all moves were read, in micro-batches of three."""
    execute(directory, "CREATE TABLE teams (team TEXT PRIMARY KEY, player TEXT, moves INTEGER)")
    bodies = [(0, json.dumps({"player": player, "team": team}).encode()) for player, team in MOVES]
    with filled_topic(directory, bodies, 1) as topic:
        bounded_run(spark, topic, f"{CUT}{SCRIPT.replace('{directory}', str(directory))} {clause}", name="teams")
    return execute(directory, "SELECT team, player, moves FROM teams ORDER BY team")


@pytest.mark.parametrize("clause", ["ON CONFLICT DO DEDUPLICATE", "ON CONFLICT DO NOTHING"])
def test_a_table_keeps_a_row_of_each_key_when_the_one_it_held_is_taken_back(
    clause: str, spark: SparkSession, tmp_path: Path
) -> None:
    rows = shown(spark, tmp_path, clause)
    assert [team for team, _, _ in rows] == sorted({team for team, _ in latest().values()})
    assert len(rows) < len(latest())
    assert all(latest()[player] == (team, moves) for team, player, moves in rows)


def test_rows_that_fall_together_end_a_job_that_asks_for_it(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="ON CONFLICT DO ERROR"):
        shown(spark, tmp_path, "ON CONFLICT DO ERROR")
