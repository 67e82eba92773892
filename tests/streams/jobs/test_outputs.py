"""What a job writes is opened before anything runs, and what cannot be done is said then."""

from __future__ import annotations

import pytest

from millstream.streams.errors import JobError
from millstream.streams.jobs.outputs import outputs_of
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.compiler import SqlSession

TABLES = (
    "SET 'execution.runtime-mode' = 'batch'; CREATE TABLE s (a INT) WITH ('connector' = 'datagen');"
    "CREATE TABLE f (a INT) WITH ('connector' = 'filesystem', 'path' = '/x');"
)


def plan(insert: str) -> JobPlan:
    found = SqlSession().compile(TABLES + insert)[-1]
    assert isinstance(found, JobPlan)
    return found


def test_overwriting_is_refused_before_it_adds_to_what_it_should_replace() -> None:
    overwriting, adding = plan("INSERT OVERWRITE f SELECT a FROM s"), plan("INSERT INTO f SELECT a FROM s")
    settings = JobSettings.of(adding.settings, "localhost:9876")
    assert [output.sink.name for output in outputs_of(adding, settings, None)] == ["f"]
    with pytest.raises(JobError, match="OVERWRITE"):
        outputs_of(overwriting, settings, None)
