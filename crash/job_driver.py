"""What the drivers that may be killed have in common: `python -m crash.SOME_job NAMESERVER DIRECTORY ROWS`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["run_job"]

_KEPT_BATCHES = "100000"
"""Micro-batches of which Spark keeps what it noted: all of them, to be looked at afterwards."""

_LIMIT_S = 900.0


def run_job(script_for: Callable[[Path], str], *, bounded: bool = False) -> int:
    """Run what `script_for(DIRECTORY)` says over DIRECTORY/checkpoints, of ROWS rows a micro-batch; 0 if it ended.

    A job that is not `bounded` runs until it is killed.
    """
    nameserver, directory, rows = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    script = f"SET 'millstream.max-rows-per-trigger' = '{rows}';" + script_for(directory)
    plan = SqlSession(nameserver=nameserver).compile(script)[-1]
    assert isinstance(plan, JobPlan)
    kept = {"spark.sql.streaming.minBatchesToRetain": _KEPT_BATCHES}
    session = start_session(SessionOptions(memory_mb=600, settings=kept))
    try:
        runner = JobRunner(session, nameserver=nameserver, checkpoint_root=directory / "checkpoints")
        job = runner.start(plan, name="job", bounded=bounded)
        job.wait(_LIMIT_S if bounded else threading.TIMEOUT_MAX)
        return int(job.progress().state != "ended")
    finally:
        session.stop()
