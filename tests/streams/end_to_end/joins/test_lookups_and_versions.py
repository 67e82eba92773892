"""Rows joined with what a table holds now, and with what it held at their time."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run, filled_topic

pytestmark = pytest.mark.spark

NOON = datetime.datetime(2026, 3, 1, 12, 0)
# Kind, id, currency, rate, seconds after noon; out of order by less than the watermark's 30 seconds.
EVENTS = [
    ("rate", None, "EUR", 114, 0),
    ("order", 1, "EUR", None, 20),
    ("rate", None, "EUR", 116, 40),
    ("order", 2, "EUR", None, 30),
    ("order", 3, "YEN", None, 41),
    ("rate", None, "YEN", 1, 45),
    ("order", 4, "EUR", None, 40),
    ("order", 5, "YEN", None, 50),
    ("rate", None, "EUR", 119, 60),
    ("order", 6, None, None, 61),
]
MODES = {
    "cut": "SET 'millstream.max-rows-per-trigger' = '5';",
    "batch": "SET 'execution.runtime-mode' = 'batch';",
}
TABLES = """
CREATE TABLE events (kind STRING, id BIGINT, currency STRING, rate INT, at STRING, ts AS TO_TIMESTAMP(at),
  p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '30' SECOND) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE VIEW orders AS SELECT id, currency, ts, p FROM events WHERE kind = 'order';
CREATE VIEW versions AS SELECT currency, rate, ts AS since FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ts DESC) AS place FROM events WHERE kind = 'rate')
  WHERE place = 1;
"""
VERSIONS = """
CREATE TABLE rated (id BIGINT, rate INT) WITH ('connector' = 'print');
CREATE TABLE rated_or_not (id BIGINT, rate INT, since TIMESTAMP(3)) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO rated SELECT o.id, v.rate FROM orders AS o JOIN versions FOR SYSTEM_TIME AS OF o.ts AS v
  ON o.currency = v.currency;
INSERT INTO rated_or_not SELECT o.id, v.rate, v.since FROM orders AS o
  LEFT JOIN versions FOR SYSTEM_TIME AS OF o.ts AS v ON o.currency = v.currency AND v.rate > o.id * 50;
END;
"""
LOOKUPS = """
CREATE TABLE names (code STRING, name STRING, whole AS code || ' ' || name)
  WITH ('connector' = 'filesystem', 'path' = '{directory}/names', 'format' = 'csv');
CREATE TABLE banks (currency STRING, bank STRING, founded INT)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{directory}/banks.db', 'table-name' = 'banks');
CREATE TABLE named (id BIGINT, name STRING, whole STRING) WITH ('connector' = 'print');
CREATE TABLE banked (id BIGINT, bank STRING) WITH ('connector' = 'print');
CREATE TABLE banks_of_names (name STRING, banks BIGINT) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO named SELECT o.id, n.name, n.whole FROM orders AS o JOIN names FOR SYSTEM_TIME AS OF o.p AS n
  ON o.currency = n.code AND n.name <> 'Franc';
INSERT INTO banked SELECT o.id, b.bank FROM orders AS o LEFT JOIN banks FOR SYSTEM_TIME AS OF o.p AS b
  ON o.currency = b.currency AND b.founded < 1990 + o.id;
INSERT INTO banks_of_names SELECT n.name, COUNT(b.bank) FROM orders AS o
  JOIN names FOR SYSTEM_TIME AS OF o.p AS n ON o.currency = n.code
  JOIN banks FOR SYSTEM_TIME AS OF o.p AS b ON o.currency = b.currency GROUP BY n.name;
END;
"""


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    bodies = [
        (0, json.dumps({"kind": kind, "id": id_, "currency": currency, "rate": rate, "at": f"{at(second)}"}).encode())
        for kind, id_, currency, rate, second in EVENTS
    ]
    directory = tmp_path_factory.mktemp("events")
    (directory / "names").mkdir()
    (directory / "names" / "part.csv").write_text("EUR,Euro\nEUR,Franc\nYEN,Yen\n")
    connection = sqlite3.connect(directory / "banks.db")
    connection.execute("CREATE TABLE banks (currency TEXT, bank TEXT, founded INTEGER)")
    banks = [("EUR", "ECB", 1998), ("EUR", "Bundesbank", 1957), ("YEN", "Nippon", 1993)]
    connection.executemany("INSERT INTO banks VALUES (?, ?, ?)", banks)
    connection.commit()
    connection.close()
    with filled_topic(directory, bodies, 1) as topic:
        yield topic


def at(second: int) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=second)


@pytest.mark.parametrize("mode", list(MODES))
def test_rows_meet_the_versions_of_their_time(mode: str, spark: SparkSession, events: Topic) -> None:
    found = bounded_run(spark, events, MODES[mode] + TABLES + VERSIONS, name=f"versions-{mode}")
    assert found.table("rated") == Counter([(1, 114), (2, 114), (4, 116), (5, 1)])
    old = [(1, 114, at(0)), (2, 114, at(0))]
    nothing = [(number, None, None) for number in (3, 4, 5, 6)]
    assert found.table("rated_or_not") == Counter([*old, *nothing])


@pytest.mark.parametrize("mode", list(MODES))
def test_rows_meet_what_is_looked_up(mode: str, spark: SparkSession, events: Topic) -> None:
    script = MODES[mode] + TABLES + LOOKUPS.replace("{directory}", str(events.directory))
    found = bounded_run(spark, events, script, name=f"lookups-{mode}")
    euros = [(number, "Euro", "EUR Euro") for number in (1, 2, 4)]
    assert found.table("named") == Counter([*euros, (3, "Yen", "YEN Yen"), (5, "Yen", "YEN Yen")])
    banked = [(1, "Bundesbank"), (2, "Bundesbank"), (4, "Bundesbank"), (3, None), (5, "Nippon"), (6, None)]
    assert found.table("banked") == Counter(banked)
    assert found.table("banks_of_names") == Counter([("Euro", 6), ("Franc", 6), ("Yen", 2)])
