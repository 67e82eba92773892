"""A driver that may be killed: `python -m crash.rules_job NAMESERVER DIRECTORY ROWS` judges a topic until it is killed.

Its rules are in DIRECTORY/rules and change while it runs. Each alert tells its event's place and the version of the
rules that judged it.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.session import SessionOptions, start_session
from millstream.streams.sql.compiler import SqlSession

__all__ = ["ALERTS", "EVENTS"]

EVENTS = "events"
ALERTS = "alerts"

_KEPT_BATCHES = "100000"
"""Micro-batches of which Spark keeps what it noted: all of them, to be looked at afterwards."""

_SCRIPT = """
CREATE TABLE hits (
  rule STRING, version BIGINT, queue INT METADATA FROM 'queue-id', place BIGINT METADATA FROM 'queue-offset'
) WITH ('connector' = 'rules', 'topic' = '{events}', 'store' = '{store}');
CREATE TABLE alerts (rule STRING, version BIGINT, queue INT, place BIGINT)
  WITH ('connector' = 'rocketmq', 'topic' = '{alerts}');
INSERT INTO alerts SELECT rule, version, queue, place FROM hits;
"""


def main() -> int:
    nameserver, directory, rows = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    script = _SCRIPT.format(events=EVENTS, alerts=ALERTS, store=directory / "rules")
    settings = f"SET 'millstream.max-rows-per-trigger' = '{rows}';"
    plan = SqlSession(nameserver=nameserver).compile(settings + script)[-1]
    assert isinstance(plan, JobPlan)
    kept = {"spark.sql.streaming.minBatchesToRetain": _KEPT_BATCHES}
    session = start_session(SessionOptions(memory_mb=600, settings=kept))
    try:
        runner = JobRunner(session, nameserver=nameserver, checkpoint_root=directory / "checkpoints")
        runner.start(plan, name="job").wait(threading.TIMEOUT_MAX)
    finally:
        session.stop()
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
