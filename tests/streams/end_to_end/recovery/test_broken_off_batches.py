"""A batch that is stopped before its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

HOURS_OF_WORK = """
SET 'execution.runtime-mode' = 'batch';
CREATE TABLE made_up (event_type INT) WITH ('connector' = 'nexmark', 'events.num' = '2000000000');
SELECT event_type, COUNT(*) AS n FROM made_up GROUP BY event_type
"""


@pytest.mark.spark
def test_a_batch_that_only_shows_rows_ends_when_it_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    plan = SqlSession().compile(HOURS_OF_WORK)[-1]
    assert isinstance(plan, QueryPlan)
    shown: list[object] = []
    job = JobRunner(spark, nameserver="", checkpoint_root=tmp_path).start(plan, name="q", on_rows=shown.append)
    assert not job.wait(1.0)
    job.stop()
    assert job.wait(0)
    assert (job.progress().state, shown) == ("ended", [])
