"""Deferred job starts: once the servers of the tables answer, or once the input is written."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from millstream.model.errors import ConnectionFailed, MillstreamError
from millstream.streams.errors import JobError, StartTimedOut
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.job_events import JobEvents, merge_events
from millstream.streams.jobs.pipeline import Pipeline
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.jobs.restarts import first_cause

__all__ = ["AwaitedPipeline", "AwaitedStart", "DependentPipeline", "may_come"]


LOOK_FOR_STOP_S = 0.2
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
                while not pipeline.wait(LOOK_FOR_STOP_S):
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


_log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 1.0
"""How long it is waited between two attempts to start."""


def may_come(error: MillstreamError) -> bool:
    """Whether the error says that a server is away that may come back."""
    return isinstance(error, ConnectionFailed) or error.name in ("BROKER_NOT_FOUND", "STATE_UNREACHABLE")


class AwaitedStart:
    """Calls `start`, which gives the pipelines of each job, until the servers answer or `limit_s` is over.

    `error` is what the attempt before gave. `pause` waits so many seconds, and says whether to give up; None: until
    `stop` is called.
    """

    def __init__(
        self,
        start: Callable[[], Sequence[Sequence[Pipeline]]],
        error: MillstreamError,
        *,
        limit_s: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self._start = start
        self._limit_s = limit_s
        self._clock = clock
        self._stopping = threading.Event()
        self._pause = pause or self._stopping.wait
        self._until_s = clock() + limit_s
        self._decided = threading.Event()
        self._jobs: Sequence[Sequence[Pipeline]] | None = None
        self.error: JobError | None = None
        self._reason = first_cause(error)
        self.events = JobEvents()
        self.events.note_away(self._reason)
        _log.warning("%s", self.trouble())
        threading.Thread(target=self._try, name="millstream-awaited-start", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is decided within that time that the jobs have started, or do not."""
        return self._decided.wait(timeout_s)

    def pipelines(self, place: int) -> Sequence[Pipeline] | None:
        """Those of the job at that place; None unless it has started."""
        return None if self._jobs is None else self._jobs[place]

    def stop(self) -> None:
        """Give up, and return when no attempt is under way any more."""
        self._stopping.set()
        self._decided.wait()

    def trouble(self) -> str:
        """What the jobs wait for, and for how many seconds more at most."""
        left_s = max(0.0, self._until_s - self._clock())
        return f"{self._reason} The job starts once it answers, or fails in {left_s:.0f} s."

    def _try(self) -> None:
        try:
            while not self._pause(min(LOOK_AGAIN_S, max(0.0, self._until_s - self._clock()))):
                try:
                    self._jobs = self._start()
                    self.events.note_back()
                    return
                except MillstreamError as error:
                    if not may_come(error):
                        raise
                    if self._clock() >= self._until_s:
                        raise StartTimedOut(
                            f"{first_cause(error)} The job waited {self._limit_s:g} s for it."
                        ) from None
                    self._reason = first_cause(error)
        except JobError as error:
            self.error = error
        except (MillstreamError, PySparkException, Py4JError, OSError) as error:
            self.error = JobError("JOB_FAILED", f"The job did not start: {first_cause(error)}")
        finally:
            self._decided.set()


class AwaitedPipeline:
    """The pipelines of the job at a place of an `AwaitedStart`, as one."""

    def __init__(self, start: AwaitedStart, place: int) -> None:
        self._start = start
        self._place = place

    def find_pipelines(self) -> Sequence[Pipeline]:
        """The pipelines that it has become; none before its start."""
        return self._start.pipelines(self._place) or ()

    def progress(self) -> JobProgress:
        """The counts now; before the start what is waited for."""
        pipelines, events = self._start.pipelines(self._place), self._start.events.last()
        if pipelines is not None:
            found = JobHandle("", pipelines).progress()
            return replace(found, events=merge_events([events, found.events]))
        if not self._start.wait(0):
            return JobProgress(trouble=self._start.trouble(), events=events)
        return JobProgress(state="ended" if self._start.error is None else "failed", events=events)

    def wait(self, timeout_s: float) -> bool:
        """Whether all is done within that time; the wait for the start counts."""
        until_s = time.monotonic() + timeout_s
        if not self._start.wait(timeout_s):
            return False
        pipelines = self._start.pipelines(self._place) or ()
        return all(pipeline.wait(max(0.0, until_s - time.monotonic())) for pipeline in pipelines)

    def failure(self) -> JobError | None:
        """Why it failed, or could not start."""
        failures = (pipeline.failure() for pipeline in self._start.pipelines(self._place) or ())
        return self._start.error or next((failure for failure in failures if failure is not None), None)

    def stop(self) -> None:
        """End it; returns when it has ended. Jobs that were to start together are given up together."""
        if self._start.pipelines(self._place) is None:
            self._start.stop()
        for pipeline in self._start.pipelines(self._place) or ():
            pipeline.stop()
