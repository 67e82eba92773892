"""A bounded run of a job, with the time and the processor time that it took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.progress import JobProgress
from millstream.telemetry.process_tree import TreeRecorder

__all__ = ["JobRun", "measured_run"]


class JobRun(NamedTuple):
    """Seconds from the start to the end, and processor seconds of this process and all below it meanwhile."""

    seconds: float
    cpu_s: float
    progress: JobProgress


def measured_run(start: Callable[[], JobHandle], limit_s: float) -> JobRun:
    """Start a job that ends by itself and wait for it. Raises what its start and its end raise."""
    with TreeRecorder([os.getpid()]) as recorder:
        recorder.take()
        before_s, started_s = recorder.cpu_s(), time.monotonic()
        job = start()
        job.wait(limit_s)
        seconds = time.monotonic() - started_s
        recorder.take()
        return JobRun(seconds, recorder.cpu_s() - before_s, job.progress())
