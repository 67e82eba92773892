"""What a job writes is opened before anything runs."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.connectors.filesystem.sink import FileSink
from millstream.streams.jobs.outputs import outputs_of
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.session.compiler import SqlSession

TABLES = (
    "SET 'execution.runtime-mode' = 'batch'; CREATE TABLE s (a INT) WITH ('connector' = 'datagen');"
    "CREATE TABLE f (a INT, dt STRING, h INT) PARTITIONED BY (dt, h) WITH ('connector' = 'filesystem', 'path' = '/x');"
)


def sink_of(insert: str) -> FileSink:
    plan = SqlSession().compile(TABLES + insert)[-1]
    assert isinstance(plan, JobPlan)
    (output,) = outputs_of(plan, JobSettings.of(plan.settings, "localhost:9876"), None)
    assert isinstance(output.sink, FileSink)
    return output.sink


@pytest.mark.parametrize(
    ("insert", "overwrites", "emptied"),
    [
        ("INSERT INTO f SELECT a, 'x', 1 FROM s", False, None),
        ("INSERT OVERWRITE f SELECT a, 'x', 1 FROM s", True, None),
        ("INSERT OVERWRITE f PARTITION (dt = 'x:') SELECT a, 1 FROM s", True, None),
        ("INSERT OVERWRITE f PARTITION (dt = 'x:', h = 1) SELECT a FROM s", True, "dt=x%3A/h=1"),
    ],
)
def test_overwriting_knows_the_partition_that_is_replaced_in_any_case(
    insert: str, overwrites: bool, emptied: str | None
) -> None:
    sink = sink_of(insert)
    assert (sink.overwrites, sink.emptied) == (overwrites, emptied)
