"""A driver that may be killed: `python -m crash.topic_job NAMESERVER DIRECTORY ROWS` runs a job from topic to topics.

Its sinks are rows as they come, counts that Spark's own window makes, sums that change, from an operator of ours, and
partitions of files in the directory.
"""

from __future__ import annotations

from pathlib import Path

from crash.job_driver import run_job

__all__ = ["FILES", "SINKS", "SOURCE", "script_of"]

SOURCE = "t"
SINKS = ("plain", "counted", "summed")
FILES = "filed"
"""The directory of files, partitioned by k."""

_SCRIPT = """
CREATE TABLE t (id INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE plain (id INT, word STRING) WITH ('connector' = 'rocketmq', 'topic' = 'plain');
CREATE TABLE counted (k INT, n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'counted');
CREATE TABLE summed (k INT, total INT)
  WITH ('connector' = 'rocketmq', 'topic' = 'summed', 'format' = 'changelog-json');
CREATE TABLE filed (id INT, k INT) PARTITIONED BY (k)
  WITH ('connector' = 'filesystem', 'path' = '{filed}', 'sink.partition-commit.policy.kind' = 'success-file');
EXECUTE STATEMENT SET BEGIN
INSERT INTO plain SELECT id, CONCAT('w', CAST(id AS STRING)) FROM t WHERE id >= 10;
INSERT INTO counted SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND))
  GROUP BY k, window_start, window_end;
INSERT INTO summed SELECT k, SUM(id) FROM t GROUP BY k;
INSERT INTO filed SELECT id, k FROM t;
END;
"""
"""The job; a row a second of event time."""


def script_of(directory: Path) -> str:
    """The script for that directory."""
    return _SCRIPT.format(filed=directory / FILES)


if __name__ == "__main__":
    raise SystemExit(run_job(script_of, bounded=True))
