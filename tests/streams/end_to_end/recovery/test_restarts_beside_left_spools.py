"""A job goes on beside the spool files that a killed job of an earlier version left in its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, compiled

from millstream.streams.jobs.runner import JobRunner

pytestmark = pytest.mark.spark

SCRIPT = """
CREATE TABLE f (id INT, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = '{path}/in', 'format' = 'csv');
SELECT DATE_FORMAT(window_start, 'mm:ss'), COUNT(*)
  FROM TUMBLE(TABLE f, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end
"""
LEFT = {
    "malformed/f/files-0-1-0.malformed": b"\x91\x84\xa5queue\xa5files\xacqueue_offset\x01\xa6reason\xa3odd\xa4body\xc4\0",
    "calls/0-0-0-0-0.calls": b"\x91\x84\xa5stage\xa30-0",
    "late/0-windowaggregate-0-0.late": b"\x80\x05N.",
    "late/0-windowaggregate-0.open": b"\x92\x01\x05",
    "late/0-windowaggregate.times": b"\x83\xacwatermark_us\x07\xa6queues\x80\xa7untimed\x80",
    "late/.0-windowaggregate.times.4711": b"\x83",
    "sources/f-rules/work/files-0-1.work": b'{"version":1,"events":2,"hits":{"one":1}}',
    "sinks/0-rows/00000-4711-0a0b0c0d": b"ARROW1",
}
"""As they were before spools had one format: msgpack of lists, pickle, JSON and Arrow."""


def run(spark: SparkSession, root: Path) -> Collected:
    found = Collected()
    runner = JobRunner(spark, nameserver="127.0.0.1:9", checkpoint_root=root / "checkpoints")
    job = runner.start(compiled(SCRIPT.replace("{path}", str(root)), ""), name="counts", on_rows=found.take)
    assert job.wait(LIMIT_S), job.progress()
    found.progress = job.progress()
    assert found.progress.state == "ended"
    return found


def write(root: Path, name: str, *lines: str) -> None:
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / name).write_text("".join(f"{line}\n" for line in lines))


def test_a_job_goes_on_beside_what_an_earlier_version_left(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "1,2026-03-01 12:00:01", "2,2026-03-01 12:00:02")
    assert run(spark, tmp_path).rows["result"] == [("00:00", 2)]
    (checkpoint,) = (tmp_path / "checkpoints" / "counts").iterdir()
    for name, content in LEFT.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_bytes(content)
    write(tmp_path, "b.csv", "3,2026-03-01 12:00:41", "x")
    again = run(spark, tmp_path)
    assert again.rows["result"] == [("00:40", 1)]
    assert (again.progress.malformed, again.progress.late, again.progress.failed_calls) == (1, 0, {})
