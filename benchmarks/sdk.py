"""A job of the DataStream SDK beside the same job of SQL, over the same made-up rows."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.job_runs import JobRun, measured_run, medians
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sdk import StreamBuilder, tumbling
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_sink

__all__ = ["measure_sdk"]

_ROWS = int(os.environ.get("SDK_ROWS", "400000"))
_ROUNDS = 3
_PLANS = 20
_LIMIT_S = 900.0

_ROWS_PER_S = 10_000
"""Of event time: a million rows are 100 s, ten windows of each key."""

_TABLES = f"""
CREATE TABLE events (
  id BIGINT, host BIGINT, bytes BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH (
  'connector' = 'datagen', 'number-of-rows' = '{_ROWS}', 'rows-per-second' = '{_ROWS_PER_S}',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{_ROWS}',
  'fields.host.min' = '0', 'fields.host.max' = '99', 'fields.bytes.min' = '0', 'fields.bytes.max' = '4095'
);
CREATE TABLE kept (id BIGINT, host BIGINT, kib DOUBLE) WITH ('connector' = 'blackhole');
CREATE TABLE sums (window_start TIMESTAMP(3), window_end TIMESTAMP(3), host BIGINT, total BIGINT, n BIGINT)
  WITH ('connector' = 'blackhole');
"""

_INSERTS = {
    "choosing": "INSERT INTO kept SELECT id, host, bytes / 1024.0E0 AS kib FROM events WHERE bytes > 1000;",
    "summing": """INSERT INTO sums SELECT window_start, window_end, host, SUM(bytes) AS total, COUNT(*) AS n
      FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE bytes > 1000
      GROUP BY window_start, window_end, host;""",
}

Figures = dict[str, Any]


def _chosen_by_sdk() -> StreamBuilder:
    builder = StreamBuilder("sdk").sql(_TABLES)
    builder.table("events").filter("bytes > 1000").select("id", "host", kib="bytes / 1024.0E0").insert_into("kept")
    return builder


def _summed_by_sdk() -> StreamBuilder:
    builder = StreamBuilder("sdk").sql(_TABLES)
    windows = builder.table("events").filter("bytes > 1000").key_by("host").window(tumbling("10 s"), on="ts")
    windows.aggregate(total="SUM(bytes)", n="COUNT(*)").insert_into("sums")
    return builder


_BUILDERS: dict[str, Callable[[], StreamBuilder]] = {"choosing": _chosen_by_sdk, "summing": _summed_by_sdk}


def measure_sdk() -> Figures:
    """Seconds and processor seconds of bounded jobs, from the text or the calls to their end, and the ratios SDK / SQL.

    Each pair takes turns, `_ROUNDS` times, the other one first each time, on one session; the first round is left out.
    Whether both have one plan, and what making it takes, tells more where the machine is busy.
    """
    session = start_session(SessionOptions())
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return {"rows": _ROWS} | {name: _pair(name, session, Path(scratch)) for name in _INSERTS}
    finally:
        session.stop()


def _pair(name: str, session: SparkSession, scratch: Path) -> Figures:
    plans: dict[str, Callable[[], JobPlan]] = {"sql": partial(_sql_plan, name), "sdk": lambda: _BUILDERS[name]().plan()}
    runs: dict[str, list[JobRun]] = {form: [] for form in plans}
    for number in range(_ROUNDS + 1):
        for form in sorted(plans, reverse=number % 2 == 0):
            runner = JobRunner(session, nameserver="127.0.0.1:9", checkpoint_root=scratch / f"{name}-{form}-{number}")
            runs[form].append(measured_run(partial(_start, runner, plans[form]), _LIMIT_S))
    found = {form: medians(several[1:]) for form, several in runs.items()}
    return {
        **found,
        "same_plan": _shown(plans["sdk"]()) == _shown(plans["sql"]()),
        "plan_ms": {form: _least_ms(plan) for form, plan in plans.items()},
        "seconds_ratio": round(found["sdk"]["seconds"] / found["sql"]["seconds"], 3),
        "cpu_ratio": round(found["sdk"]["cpu_s"] / found["sql"]["cpu_s"], 3),
    }


def _sql_plan(name: str) -> JobPlan:
    plan = SqlSession().compile(_TABLES + _INSERTS[name])[-1]
    assert isinstance(plan, JobPlan)
    return plan


def _shown(plan: JobPlan) -> list[str]:
    return [line for sink in plan.sinks for line in explain_sink(sink)]


def _least_ms(plan: Callable[[], JobPlan]) -> float:
    """Processor milliseconds from the text or the calls to the plan, the least of some."""
    taken_s = []
    for _ in range(_PLANS):
        began_s = time.process_time()
        plan()
        taken_s.append(time.process_time() - began_s)
    return round(min(taken_s) * 1000, 2)


def _start(runner: JobRunner, plan: Callable[[], JobPlan]) -> JobHandle:
    return runner.start(plan(), name="job", bounded=True)
