"""A driver that may be killed: `python -m crash.rules_job NAMESERVER DIRECTORY ROWS` judges a topic until it is killed.

Its rules are in DIRECTORY/rules and change while it runs. Each alert tells its event's place and the version of the
rules that judged it.
"""

from __future__ import annotations

from pathlib import Path

from crash.job_driver import run_job

__all__ = ["ALERTS", "EVENTS"]

EVENTS = "events"
ALERTS = "alerts"

_SCRIPT = """
CREATE TABLE hits (
  rule STRING, version BIGINT, queue INT METADATA FROM 'queue-id', place BIGINT METADATA FROM 'queue-offset'
) WITH ('connector' = 'rules', 'topic' = '{events}', 'store' = '{store}');
CREATE TABLE alerts (rule STRING, version BIGINT, queue INT, place BIGINT)
  WITH ('connector' = 'rocketmq', 'topic' = '{alerts}');
INSERT INTO alerts SELECT rule, version, queue, place FROM hits;
"""


def _script(directory: Path) -> str:
    return _SCRIPT.format(events=EVENTS, alerts=ALERTS, store=directory / "rules")


if __name__ == "__main__":
    raise SystemExit(run_job(_script))
