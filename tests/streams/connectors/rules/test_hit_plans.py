"""Which jobs read nothing but hits of rules."""

from __future__ import annotations

import pytest

from millstream.streams.connectors.rules.hit_plans import reads_hits_alone
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE hits (rule STRING) WITH ('connector' = 'rules', 'topic' = 't', 'store' = '/s');
CREATE TABLE events (rule STRING) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE nowhere (rule STRING) WITH ('connector' = 'blackhole');
"""


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO nowhere SELECT rule FROM hits;", True),
        ("SELECT rule FROM hits;", True),
        ("INSERT INTO nowhere SELECT rule FROM events;", False),
        ("SELECT h.rule FROM hits AS h JOIN events AS e ON h.rule = e.rule;", False),
        ("SELECT * FROM (VALUES (1)) AS t (a);", False),
    ],
)
def test_hits_alone_are_told_from_whatever_else_a_job_reads(statement: str, expected: bool) -> None:
    plan = SqlSession(nameserver="here:1").compile(TABLES + statement)[-1]
    assert isinstance(plan, JobPlan | QueryPlan)
    assert reads_hits_alone(plan) is expected
