"""A query of a job that reads what others of the job write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from millstream.model.errors import MillstreamError
from millstream.streams.errors import JobError
from millstream.streams.jobs.pipeline import Pipeline
from millstream.streams.jobs.progress import JobProgress

__all__ = ["DependentPipeline"]

LOOK_AGAIN_S = 0.2
"""How often it is looked whether the job is stopped while the others run."""


class DependentPipeline:
    """The pipeline that `start` gives, once all of `before` have ended; none if one of them failed or it is stopped.

    With none before it starts at once, and raises what `start` raises. The rows that it reads were read before.
    """

    def __init__(self, before: Sequence[Pipeline], start: Callable[[], Pipeline]) -> None:
        self._before = tuple(before)
        self._start = start
        self._pipeline: Pipeline | None = None
        self._error: JobError | None = None
        self._stopping = threading.Event()
        self._decided = threading.Event()
        if before:
            threading.Thread(target=self._follow, name="millstream-dependent", daemon=True).start()
        else:
            self._pipeline = start()
            self._decided.set()

    def progress(self) -> JobProgress:
        """The counts now; none before the start."""
        if self._pipeline is not None:
            return replace(self._pipeline.progress(), rows_in=0, rows_per_s=0.0)
        if not self._decided.is_set():
            return JobProgress()
        return JobProgress(state="failed" if self._error is not None else "ended")

    def wait(self, timeout_s: float) -> bool:
        """Whether all is done within that time; the wait for the start counts."""
        until_s = time.monotonic() + timeout_s
        if not self._decided.wait(timeout_s):
            return False
        return self._pipeline is None or self._pipeline.wait(max(0.0, until_s - time.monotonic()))

    def failure(self) -> JobError | None:
        """Why it failed, or could not start."""
        return self._error if self._pipeline is None else self._pipeline.failure()

    def stop(self) -> None:
        """End it; returns when it has ended."""
        self._stopping.set()
        self._decided.wait()
        if self._pipeline is not None:
            self._pipeline.stop()

    def _follow(self) -> None:
        try:
            for pipeline in self._before:
                while not pipeline.wait(LOOK_AGAIN_S):
                    if self._stopping.is_set():
                        return
            if not self._stopping.is_set() and not any(pipeline.failure() for pipeline in self._before):
                self._pipeline = self._start()
        except JobError as error:
            self._error = error
        except (MillstreamError, PySparkException, Py4JError, OSError) as error:
            self._error = JobError("JOB_FAILED", f"The job did not start to count: {error}")
        finally:
            self._decided.set()
