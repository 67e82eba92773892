"""A driver that may be killed: `python -m crash.topic_job NAMESERVER CHECKPOINTS ROWS` runs a job from topic to topics.

Its sinks are rows as they come, counts that Spark's own window makes, sums that change, from an operator of ours, and
partitions of files beside the checkpoints.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.session import SessionOptions, start_session
from millstream.streams.sql.compiler import SqlSession

__all__ = ["FILES", "SCRIPT", "SINKS", "SOURCE"]

SOURCE = "t"
SINKS = ("plain", "counted", "summed")
FILES = "filed"
"""The directory of files, partitioned by k."""

_LIMIT_S = 900.0

SCRIPT = """
CREATE TABLE t (id INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE plain (id INT, word STRING) WITH ('connector' = 'rocketmq', 'topic' = 'plain');
CREATE TABLE counted (k INT, n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'counted');
CREATE TABLE summed (k INT, total INT)
  WITH ('connector' = 'rocketmq', 'topic' = 'summed', 'format' = 'changelog-json');
CREATE TABLE filed (id INT, k INT) PARTITIONED BY (k)
  WITH ('connector' = 'filesystem', 'path' = '${filed}', 'sink.partition-commit.policy.kind' = 'success-file');
EXECUTE STATEMENT SET BEGIN
INSERT INTO plain SELECT id, CONCAT('w', CAST(id AS STRING)) FROM t WHERE id >= 10;
INSERT INTO counted SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND))
  GROUP BY k, window_start, window_end;
INSERT INTO summed SELECT k, SUM(id) FROM t GROUP BY k;
INSERT INTO filed SELECT id, k FROM t;
END;
"""
"""The job; a row a second of event time."""


def main() -> int:
    nameserver, checkpoints, rows = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    settings = f"SET 'millstream.max-rows-per-trigger' = '{rows}';"
    variables = {FILES: str(checkpoints.with_name(FILES))}
    plan = SqlSession(nameserver=nameserver, variables=variables).compile(settings + SCRIPT)[-1]
    assert isinstance(plan, JobPlan)
    session = start_session(SessionOptions(memory_mb=600))
    try:
        runner = JobRunner(session, nameserver=nameserver, checkpoint_root=checkpoints)
        job = runner.start(plan, name="job", bounded=True)
        job.wait(_LIMIT_S)
        return int(job.progress().state != "ended")
    finally:
        session.stop()


if __name__ == "__main__":
    raise SystemExit(main())
