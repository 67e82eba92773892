"""Rows that cannot be large are not weighed on their way to Python; all others are, in jobs of one session."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from running_jobs import LIMIT_S, compiled

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.arrow_batches import are_narrow
from millstream.streams.spark.sinks.router import WriteStage

pytestmark = pytest.mark.spark

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_SERVER = "127.0.0.1:1"
SCRIPT = """
CREATE TABLE made (n BIGINT, {column}) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence',
  'fields.n.start' = '0', 'fields.n.end' = '9');
CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT {read} FROM made;
"""
NARROW = SCRIPT.format(column="at TIMESTAMP(3)", read="n")
# What is read counts, whatever is made of it.
WIDE = SCRIPT.format(column="word STRING", read="n + CHAR_LENGTH(word)")


def plan_of(script: str) -> JobPlan:
    plan = compiled(script, NO_SERVER)
    assert isinstance(plan, JobPlan)
    return plan


@pytest.mark.parametrize(("script", "narrow"), [(NARROW, True), (WIDE, False)])
def test_rows_are_narrow_whose_values_all_have_one_width(script: str, narrow: bool) -> None:
    assert are_narrow([sink.input for sink in plan_of(script).sinks]) is narrow


def test_each_job_weighs_its_rows_or_not_and_the_session_stays_as_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, str] = {}
    deliver = WriteStage.deliver

    def noting(stage: WriteStage, batch: DataFrame, batch_id: int) -> object:
        limits[name] = batch.sparkSession.conf.get(LIMIT)
        return deliver(stage, batch, batch_id)

    monkeypatch.setattr(WriteStage, "deliver", noting)
    before = spark.conf.get(LIMIT)
    for name, script in (("narrow", NARROW), ("wide", WIDE)):
        job = JobRunner(spark, nameserver=NO_SERVER, checkpoint_root=tmp_path).start(
            plan_of(script), name=name, bounded=True
        )
        assert job.wait(LIMIT_S), job.progress()
        assert job.progress().rows_out == {"nowhere": 10}
        assert spark.conf.get(LIMIT) == before
    assert limits == {"narrow": str(2**31 - 1), "wide": before}
