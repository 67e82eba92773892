"""Scripts that the tests of the SQL front end share."""

from __future__ import annotations

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan
from millstream.streams.sql.session.compiler import Command, SqlSession
from millstream.streams.sql.shell.explain import explain_node

EVENTS = """
CREATE TABLE events (
  id BIGINT, host STRING, score DOUBLE, price DECIMAL(10, 2), small INT, ok BOOLEAN, day_ DATE,
  place ROW<city STRING, zip INT>, tags ARRAY<STRING>, text_ts STRING,
  queue INT METADATA FROM 'queue-id' VIRTUAL,
  ts AS TO_TIMESTAMP(text_ts),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'events', 'format' = 'json');
"""


def compiled(script: str) -> list[Command]:
    """All commands of the script behind the CREATE TABLE of `events`."""
    return SqlSession().compile(EVENTS + script)[1:]


def query(select: str) -> Node:
    """The node of one SELECT over `events`."""
    (plan,) = compiled(select)
    assert isinstance(plan, QueryPlan)
    return plan.query


def job(script: str) -> JobPlan:
    """The last command of a script, an INSERT or a statement set."""
    plan = compiled(script)[-1]
    assert isinstance(plan, JobPlan)
    return plan


def explained(select: str) -> list[str]:
    """The plan of one SELECT as text."""
    return explain_node(query(select))


def planned(tables: str, select: str) -> list[str]:
    """The plan of one SELECT behind a script of its own tables, as text: a line a node without what the scans read."""
    plan = SqlSession().compile(tables + select)[-1]
    assert isinstance(plan, QueryPlan)
    lines = explain_node(plan.query)
    beside = ("watermark ", "state: ")
    return [line.partition(" columns=[")[0] for line in lines if not line.lstrip().startswith(beside)]


def error_of(script: str) -> SqlError | None:
    """What the script is refused for, None if it is not."""
    try:
        SqlSession().compile(script)
    except SqlError as error:
        return error
    return None


def refused(script: str, *, after: str = EVENTS) -> SqlError:
    """The error of a script that is refused."""
    error = error_of(after + script)
    assert error is not None, f"{script!r} was not refused"
    return error
