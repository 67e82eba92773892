"""Our stateful operators in bounded jobs through Spark, beside the same job without an operator."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.job_runs import JobRun, measured_run
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["OPERATOR_QUERIES", "measure_operator_jobs"]

_ROWS = int(os.environ.get("OPERATOR_ROWS", "1000000"))
_QUERIES = os.environ.get("OPERATOR_QUERIES", "")
_RUNS = 3
_LIMIT_S = 900.0
_KEYS = 10_000
_NO_SERVER = "127.0.0.1:1"

_TABLES = """
CREATE TABLE events (number BIGINT, k BIGINT, v BIGINT, ts AS TO_TIMESTAMP_LTZ(number, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'datagen',
  'fields.number.kind' = 'sequence', 'fields.number.start' = '0', 'fields.number.end' = '{last}',
  'fields.k.min' = '0', 'fields.k.max' = '{last_key}', 'fields.v.min' = '0', 'fields.v.max' = '999');
CREATE TABLE nowhere (k BIGINT, a BIGINT, b BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere
"""

_PLAIN = "without"

OPERATOR_QUERIES: dict[str, str] = {
    _PLAIN: "SELECT k, v, number FROM events",
    "top-10": """SELECT k, v, number FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM events) WHERE place <= 10""",
    "keep-last": """SELECT k, v, number FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS place FROM events) WHERE place = 1""",
    "keep-first": """SELECT k, v, number FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS place FROM events) WHERE place = 1""",
    "over-rows": """SELECT k, SUM(v) OVER w, COUNT(*) OVER w FROM events
      WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)""",
    "over-unbounded": """SELECT k, SUM(v) OVER w, COUNT(*) OVER w FROM events
      WINDOW w AS (PARTITION BY k ORDER BY ts)""",
    "window": """SELECT k, SUM(v), MAX(v) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
      GROUP BY k, window_start, window_end""",
    "few-windows": """SELECT MOD(k, 10), SUM(v), MAX(v)
      FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
      GROUP BY MOD(k, 10), window_start, window_end""",
    "count-distinct": "SELECT k, COUNT(DISTINCT v), COUNT(*) FROM events GROUP BY k",
    "match": """SELECT k, a, b FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
      MEASURES FIRST(high.v) AS a, low.v AS b AFTER MATCH SKIP PAST LAST ROW
      PATTERN (high{2,} low) WITHIN INTERVAL '10' SECOND DEFINE high AS v > 900, low AS v < 100) AS m""",
}
"""The operators by name, each as a query over `events` of three BIGINT columns."""

Figures = dict[str, Any]


def measure_operator_jobs() -> Figures:
    """Rows a second and processor microseconds a row of each query, the best of three rounds on a warm session.

    OPERATOR_ROWS rows (a million) of 10,000 keys; OPERATOR_QUERIES names some of the queries. Processor time is of
    driver, JVM and Python workers; `operator_cpu_us` is what a query takes beyond the one without an operator.
    """
    names = _QUERIES.split(",") if _QUERIES else list(OPERATOR_QUERIES)
    best: dict[str, JobRun] = {}
    session = start_session(SessionOptions())
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for number in range(_RUNS):
                for name in dict.fromkeys((_PLAIN, *names)):
                    plan = SqlSession(nameserver=_NO_SERVER).compile(_script(name))[-1]
                    assert isinstance(plan, JobPlan)
                    root = Path(scratch) / f"{name}-{number}"
                    runner = JobRunner(session, nameserver=_NO_SERVER, checkpoint_root=root)
                    run = measured_run(partial(runner.start, plan, name="operators", bounded=True), _LIMIT_S)
                    print(name, round(run.seconds, 2), round(run.cpu_s, 2), flush=True)
                    if name not in best or run.cpu_s < best[name].cpu_s:
                        best[name] = run
    finally:
        session.stop()
    return {
        "rows": _ROWS,
        "keys": _KEYS,
        "load_15_min": round(os.getloadavg()[2], 1),
        **{name: _figures(run, best[_PLAIN]) for name, run in best.items()},
    }


def _script(name: str) -> str:
    return _TABLES.format(last=_ROWS - 1, last_key=_KEYS - 1) + OPERATOR_QUERIES[name] + ";"


def _figures(run: JobRun, plain: JobRun) -> Figures:
    return {
        "rows_per_s": round(_ROWS / run.seconds),
        "cpu_us_per_row": round(run.cpu_s / _ROWS * 1e6, 2),
        "operator_cpu_us_per_row": round((run.cpu_s - plain.cpu_s) / _ROWS * 1e6, 2),
        "rows_told": sum(run.progress.rows_out.values()),
    }
