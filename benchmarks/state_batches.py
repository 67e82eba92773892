"""Micro-batches of a running job through Spark while its state grows: processor time of each, with equal input."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_state_batches"]

_MANY: Final = "1000,5000000,300000,200000,100000"
_POPULATIONS: Final = [int(keys) for keys in os.environ.get("BATCH_KEYS", _MANY).split(",")]
_ROWS_PER_BATCH: Final = 20_000
_KEYS_PER_BATCH: Final = 1_000
_WARM_BATCHES: Final = 15
_BATCHES: Final = int(os.environ.get("BATCHES", "60"))
_LOOK_S: Final = 0.02
_LIMIT_S: Final = 580.0
_NO_SERVER: Final = "127.0.0.1:1"

_SCRIPT: Final = """
SET 'millstream.max-rows-per-trigger' = '{most}';
SET 'execution.checkpointing.interval' = '0 s';
CREATE TABLE events (number BIGINT) WITH ('connector' = 'datagen',
  'fields.number.kind' = 'sequence', 'fields.number.start' = '0', 'fields.number.end' = '{last}');
CREATE TABLE nowhere (k BIGINT, a BIGINT, b BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT k, COUNT(*), SUM(number) FROM (
  SELECT number, CASE WHEN number < {keys} THEN number
    ELSE MOD((number / {rows}) * 7919 * {some} + MOD(number, {some}), {keys}) END AS k FROM events) GROUP BY k;
"""
"""First each key once, then 1,000 keys in a row in each 20,000 rows, other ones each time."""

Figures = dict[str, Any]


def measure_state_batches() -> Figures:
    """BATCHES micro-batches (60) of 20,000 rows of 1,000 keys over BATCH_KEYS keys, of a job on two cores.

    `cpu_ms` is the processor time of driver, JVM and Python workers for each of them, `p50_ms` and `max_ms` how long
    they took; `ratio` compares the processor time with that of the fewest keys. These run first once more, and then
    last: micro-batches of a session get cheaper the more it has run, which speaks against large states here.
    """
    found: Figures = {"rows_per_batch": _ROWS_PER_BATCH, "keys_per_batch": _KEYS_PER_BATCH}
    session = start_session(SessionOptions())
    try:
        with tempfile.TemporaryDirectory() as scratch:
            runner = JobRunner(session, nameserver=_NO_SERVER, checkpoint_root=Path(scratch))
            for number, keys in enumerate((_POPULATIONS[0], *reversed(_POPULATIONS))):
                figures = _measure(runner, keys, f"keys-{number}")
                print(keys, figures, flush=True)
                found[f"{keys}_keys"] = figures
    finally:
        session.stop()
    first = found[f"{_POPULATIONS[0]}_keys"]["cpu_ms"]
    for keys in _POPULATIONS:
        found[f"{keys}_keys"]["ratio"] = round(found[f"{keys}_keys"]["cpu_ms"] / first, 2)
    return found


def _measure(runner: JobRunner, keys: int, name: str) -> Figures:
    fill = -(-keys // _ROWS_PER_BATCH)
    rows = (fill + _WARM_BATCHES + _BATCHES) * _ROWS_PER_BATCH
    script = _SCRIPT.format(most=_ROWS_PER_BATCH, last=rows - 1, keys=keys, rows=_ROWS_PER_BATCH, some=_KEYS_PER_BATCH)
    plan = SqlSession(nameserver=_NO_SERVER).compile(script)[-1]
    assert isinstance(plan, JobPlan)
    job = runner.start(plan, name=name, bounded=True)
    times_s, cpu_s = _batches(job, (fill + _WARM_BATCHES) * _ROWS_PER_BATCH)
    state_bytes = job.progress().state_bytes
    return {
        "batches": len(times_s),
        "cpu_ms": round(cpu_s / max(1, len(times_s)) * 1000, 1),
        "p50_ms": round(statistics.median(times_s) * 1000),
        "max_ms": round(max(times_s) * 1000),
        "state_mib": None if state_bytes is None else round(state_bytes / 2**20, 1),
        "load_1_min": round(os.getloadavg()[0], 1),
    }


def _batches(job: JobHandle, after_rows: int) -> tuple[list[float], float]:
    """Waits for the job; the seconds of each micro-batch behind the first rows, and processor seconds of all."""
    tree, until_s = ProcessTree([os.getpid()]), time.monotonic() + _LIMIT_S
    times_s: list[float] = []
    began_cpu_s = ended_cpu_s = last_s = 0.0
    last = -1
    while not job.wait(_LOOK_S) and time.monotonic() < until_s:
        progress = job.progress()
        if progress.rows_in <= after_rows or progress.batches == last:
            continue
        now_s, now_cpu_s = time.monotonic(), sum((tree.cpu_s() or {}).values())
        if last < 0:
            began_cpu_s = now_cpu_s
        else:
            times_s += [(now_s - last_s) / (progress.batches - last)] * (progress.batches - last)
        last, last_s, ended_cpu_s = progress.batches, now_s, now_cpu_s
    if not times_s:
        raise AssertionError("the job has ended before it was measured, or has not come so far")
    return times_s, ended_cpu_s - began_cpu_s
