"""After how long silent queues hold nothing up: what a table says, else what the job says."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.jobs.outputs import tables_of
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

TABLE = """CREATE TABLE {name} (a INT, ts TIMESTAMP(3), {watermark})
WITH ('connector' = 'rocketmq', 'topic' = '{name}'{option});"""
WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"


def timeouts(query: str, setting: str = "") -> dict[int, int]:
    """In milliseconds, by the places of the tables in the query."""
    idle = ", 'scan.watermark.idle-timeout' = '{}'"
    tables = [
        TABLE.format(name="plain", watermark=WATERMARK, option=""),
        TABLE.format(name="quick", watermark=WATERMARK, option=idle.format("2 s")),
        TABLE.format(name="patient", watermark=WATERMARK, option=idle.format("0 s")),
        TABLE.format(name="timeless", watermark="b INT", option=idle.format("2 s")),
    ]
    plan = SqlSession().compile("\n".join([*tables, setting, query]))[-1]
    assert isinstance(plan, QueryPlan)
    return JobSettings.of(plan.settings, "").idle_ms_by_number(tables_of([plan.query]))


JOIN = "SELECT p.a FROM {} AS p JOIN {} AS q ON p.a = q.a AND p.ts BETWEEN q.ts AND q.ts + INTERVAL '1' MINUTE"
FOR_ALL = "SET 'table.exec.source.idle-timeout' = '9 s';"


@pytest.mark.parametrize(
    ("query", "setting", "idle_ms"),
    [
        (JOIN.format("plain", "quick"), "", {1: 2_000}),
        (JOIN.format("plain", "quick"), FOR_ALL, {0: 9_000, 1: 2_000}),
        (JOIN.format("patient", "quick"), FOR_ALL, {1: 2_000}),
        (JOIN.format("plain /*+ OPTIONS('scan.watermark.idle-timeout' = '1 min') */", "quick"), "", {0: 60_000, 1: 2_000}),
        ("SELECT a FROM timeless", FOR_ALL, {}),
    ],
)  # fmt: skip
def test_a_table_says_how_long_its_queues_may_be_silent_and_else_the_job(
    query: str, setting: str, idle_ms: dict[int, int]
) -> None:
    assert timeouts(query, setting) == idle_ms
