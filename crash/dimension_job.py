"""A driver that may be killed: `python -m crash.dimension_job NAMESERVER DIRECTORY ROWS` joins a topic until then.

Its table is DIRECTORY/labels.db, loaded as a dimension table below DIRECTORY/dimensions.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.session import SessionOptions, start_session
from millstream.streams.sql.compiler import SqlSession

__all__ = ["EVENTS", "JOINED"]

EVENTS = "events"
JOINED = "joined"

_KEPT_BATCHES = "100000"
"""Micro-batches of which Spark keeps what it noted: all of them, to be looked at afterwards."""

_SCRIPT = """
CREATE TABLE events (n BIGINT, k BIGINT, queue INT METADATA FROM 'queue-id' VIRTUAL,
  place BIGINT METADATA FROM 'queue-offset' VIRTUAL,
  p AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = '{events}');
CREATE TABLE labels (k BIGINT, part BIGINT, label BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{database}',
  'table-name' = 'labels', 'lookup.cache' = 'FULL');
CREATE TABLE joined (part BIGINT, label BIGINT, queue INT, place BIGINT)
  WITH ('connector' = 'rocketmq', 'topic' = '{joined}');
INSERT INTO joined SELECT d.part, d.label, e.queue, e.place FROM events AS e
  JOIN labels FOR SYSTEM_TIME AS OF e.p AS d ON e.k = d.k;
"""


def main() -> int:
    nameserver, directory, rows = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    script = _SCRIPT.format(events=EVENTS, joined=JOINED, database=directory / "labels.db")
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
