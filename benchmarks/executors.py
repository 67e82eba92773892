"""A CPU-bound job on Spark's own cluster with one executor of one core, and with two of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.job_runs import measured_run
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_executors"]

_ROWS: Final = int(os.environ.get("EXECUTOR_ROWS", "3200000"))
_ROWS_PER_BATCH: Final = _ROWS // 8
_LIMIT_S: Final = 540.0
_NO_SERVER: Final = "127.0.0.1:1"

_SCRIPT: Final = """
SET 'millstream.max-rows-per-trigger' = '{most}';
SET 'execution.checkpointing.interval' = '0 s';
SET 'parallelism.default' = '2';
CREATE TABLE events (number BIGINT) WITH ('connector' = 'datagen',
  'fields.number.kind' = 'sequence', 'fields.number.start' = '0', 'fields.number.end' = '{last}');
CREATE TABLE nowhere (k BIGINT, a BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT MOD(number, 1000), SUM(ASCII(SHA512(REPEAT(CAST(number AS STRING), 4000))))
  FROM events GROUP BY MOD(number, 1000);
"""
"""Each row is hashed at some 25,000 bytes."""

Figures = dict[str, Any]


def measure_executors() -> Figures:
    """EXECUTOR_ROWS rows (3,200,000) of an aggregate over an expensive hash, in eight micro-batches.

    `ratio` compares rows a second from the end of the first micro-batch to that of the last, and holds where two cores
    are idle. `cpu_ratio` is the processor time of the one executor divided by that of the busier of two: what these
    can reach by the work that each of them does.
    """
    one = _measure(1)
    print("one", one, flush=True)
    two = _measure(2)
    return {
        "rows": _ROWS,
        "one": one,
        "two": two,
        "ratio": round(two["rows_per_s"] / one["rows_per_s"], 2),
        "cpu_ratio": round(max(one["executor_cpu_s"]) / max(two["executor_cpu_s"]), 2),
    }


def _measure(executors: int) -> Figures:
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        _, master = running.enter_context(_daemon(Path(name) / "master", "spark-master", "--port", "0"))
        workers = [
            running.enter_context(_daemon(Path(name) / f"worker-{number}", "spark-worker", master, "--cores", "1"))[0]
            for number in range(executors)
        ]
        command = [sys.executable, "-m", "benchmarks.executors", master, name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            try:
                # It says when its session runs, and waits for a line: what starts cost is no part of the figures.
                _line_of(driver)
                before_s = [_cpu_s(worker.pid) for worker in workers]
                driver.stdin.write("go\n")
                driver.stdin.flush()
                figures: Figures = json.loads(_line_of(driver))
                used_s = [_cpu_s(worker.pid) - began_s for worker, began_s in zip(workers, before_s, strict=True)]
                driver.stdin.close()
                driver.wait(60)
            finally:
                driver.kill()
        return {
            **figures,
            "executor_cpu_s": [round(seconds, 1) for seconds in used_s],
            "load_1_min": round(os.getloadavg()[0], 1),
        }


def _line_of(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    line = driver.stdout.readline()
    if not line:
        raise AssertionError("the driver has ended")
    return line


def _cpu_s(pid: int) -> float:
    return sum((ProcessTree([pid]).cpu_s() or {}).values())


@contextmanager
def _daemon(directory: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A master or a worker that is ready, with the address that it prints."""
    command = [sys.executable, "-m", "millstream", "start", *words, "--dir", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(60)


def _drive(master: str, directory: Path) -> None:
    session = start_session(SessionOptions(master=master))
    script = _SCRIPT.format(most=_ROWS_PER_BATCH, last=_ROWS - 1)
    plan = SqlSession(nameserver=_NO_SERVER).compile(script)[-1]
    assert isinstance(plan, JobPlan)
    runner = JobRunner(session, nameserver=_NO_SERVER, checkpoint_root=directory / "checkpoints")
    print("ready", flush=True)
    sys.stdin.readline()
    run = measured_run(partial(runner.start, plan, name="hashes", bounded=True), _LIMIT_S)
    figures = {
        "seconds": round(run.seconds, 1),
        "rows_per_s": round(run.steady_rows_per_s or 0),
        "driver_cpu_s": round(run.cpu_s, 1),
        "batches": run.progress.batches,
    }
    print(json.dumps(figures), flush=True)
    # The executors' processes are looked at before they end.
    sys.stdin.readline()
    session.stop()


if __name__ == "__main__":
    _drive(sys.argv[1], Path(sys.argv[2]))
