"""A bounded run of a job, with the time and the processor time that it took."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.progress import JobProgress
from millstream.telemetry.processes import TreeRecorder

__all__ = ["JobRun", "measured_run", "medians"]

_LOOK_EVERY_S: Final = 0.2
"""How exactly the ends of micro-batches are timed."""


class JobRun(NamedTuple):
    """Seconds from the start to the end, and processor seconds of this process and all below it meanwhile."""

    seconds: float
    cpu_s: float
    progress: JobProgress
    steady_rows_per_s: float | None
    """Rows read a second from the end of the first micro-batch to that of the last; None with less than two."""


def measured_run(start: Callable[[], JobHandle], limit_s: float) -> JobRun:
    """Start a job that ends by itself and wait for it. Raises what its start and its end raise."""
    with TreeRecorder([os.getpid()], memory=False) as recorder:
        recorder.take()
        before_s, started_s = recorder.cpu_s(), time.monotonic()
        job = start()
        ends = _ends_of_batches(job, limit_s)
        seconds = time.monotonic() - started_s
        recorder.take()
        return JobRun(seconds, recorder.cpu_s() - before_s, job.progress(), _steady(ends))


def _ends_of_batches(job: JobHandle, limit_s: float) -> list[tuple[float, int]]:
    """Waits for the job; when how many rows had been read."""
    until_s = time.monotonic() + limit_s
    ends: list[tuple[float, int]] = []
    over = False
    while not over and time.monotonic() < until_s:
        over = job.wait(_LOOK_EVERY_S)
        rows = job.progress().rows_in
        if rows and (not ends or rows != ends[-1][1]):
            ends.append((time.monotonic(), rows))
    return ends


def _steady(ends: list[tuple[float, int]]) -> float | None:
    if len(ends) < 2:
        return None
    (began_s, before), (ended_s, after) = ends[0], ends[-1]
    return (after - before) / (ended_s - began_s)


def medians(runs: Sequence[JobRun]) -> dict[str, float]:
    """The median seconds and processor seconds of several runs."""
    return {
        "seconds": round(statistics.median(run.seconds for run in runs), 2),
        "cpu_s": round(statistics.median(run.cpu_s for run in runs), 2),
    }
