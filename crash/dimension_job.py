"""A driver that may be killed: `python -m crash.dimension_job NAMESERVER DIRECTORY ROWS` joins a topic until then.

Its table is DIRECTORY/labels.db, loaded as a dimension table below DIRECTORY/dimensions.
"""

from __future__ import annotations

from pathlib import Path

from crash.job_driver import run_job

__all__ = ["EVENTS", "JOINED"]

EVENTS = "events"
JOINED = "joined"

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


def _script(directory: Path) -> str:
    return _SCRIPT.format(events=EVENTS, joined=JOINED, database=directory / "labels.db")


if __name__ == "__main__":
    raise SystemExit(run_job(_script))
