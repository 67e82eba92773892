"""The jobs of a gateway, shared by its sessions: an INSERT continues when its session ends."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Final, Protocol

from millstream.model.errors import MillstreamError
from millstream.streams.jobs.job_book import COLUMNS, Job, JobBook
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.plan.nodes import JobPlan, QueryPlan

__all__ = ["JOB_COLUMNS", "MAX_ENDED_JOBS", "MAX_JOBS", "GatewayJobs", "JobStarter"]

_log = logging.getLogger(__name__)

MAX_JOBS: Final = 100
"""Jobs of INSERTs that run at the same time at most."""

MAX_ENDED_JOBS: Final = 1_000
"""Jobs that have ended and that SHOW JOBS tells of at most; the oldest go."""

JOB_COLUMNS: Final = ("job id", *COLUMNS)
"""What SHOW JOBS tells."""

_ROWS_IN_LOG: Final = 20
"""Rows of a print sink that the log shows of each part that arrives."""


class JobStarter(Protocol):
    """Starts plans on an engine."""

    def start(
        self, plan: JobPlan | QueryPlan, name: str, on_rows: Callable[[ResultRows], None], *, keeps_state: bool
    ) -> Job:
        """A running job. Its checkpoint lasts where it `keeps_state`: a job of the same name then goes on there."""

    def forget(self, name: str) -> None:
        """Remove what a job left that kept no state."""


class _StartingJob:
    """Stands for a job while it starts, so that its name is taken."""

    def __init__(self) -> None:
        self.is_stopped = False

    def progress(self) -> JobProgress:
        return JobProgress()

    def wait(self, timeout_s: float) -> bool:
        return False

    def stop(self) -> None:
        self.is_stopped = True


class GatewayJobs:
    """Names jobs, numbers them and ends them. Safe to call from any thread."""

    def __init__(self, starter: JobStarter) -> None:
        self._starter = starter
        self._lock = threading.Lock()
        self._book = JobBook()
        self._names: dict[str, str] = {}
        self._scratch: dict[str, str] = {}
        """By the name of a job: what the starter knows it by, where it keeps no state."""

    def query(self, plan: QueryPlan, on_rows: Callable[[ResultRows], None]) -> tuple[str, Job, Callable[[], None]]:
        """The id of a SELECT's job, the job, and what ends it."""
        job_id = uuid.uuid4().hex
        name = f"query-{job_id}"
        job = self._starter.start(plan, name, on_rows, keeps_state=False)

        def stop() -> None:
            job.stop()
            self._starter.forget(name)

        return job_id, job, stop

    def insert(self, plan: JobPlan) -> tuple[str, Job]:
        """Start the job of an INSERT. One that has a 'pipeline.name' goes on at the checkpoint of that name.

        Raises GATEWAY_FULL and what the start raises.
        """
        job_id, starting = uuid.uuid4().hex, _StartingJob()
        keeps_state = "pipeline.name" in plan.settings
        with self._lock:
            self._look()
            if len(self._book.running) >= MAX_JOBS:
                raise MillstreamError("GATEWAY_FULL", f"{MAX_JOBS} jobs run.")
            name = self._book.free_name(plan)
            self._names = {one: known for one, known in self._names.items() if known != name}
            self._names[job_id] = name
            self._book.add(name, starting)
        scratch = f"job-{job_id}"
        # Outside of the lock: what starts takes seconds, and others ask for jobs meanwhile.
        try:
            job = self._starter.start(plan, name if keeps_state else scratch, _show, keeps_state=keeps_state)
        except BaseException:
            with self._lock:
                self._book.forget(name)
                self._names.pop(job_id, None)
            raise
        with self._lock:
            self._book.add(name, job)
            if not keeps_state:
                self._scratch[name] = scratch
            if starting.is_stopped:
                self._book.stop(name)
        return job_id, job

    def rows(self) -> list[tuple[str | int | None, ...]]:
        """What SHOW JOBS says, in the order of the starts."""
        with self._lock:
            self._look()
            ids = {name: job_id for job_id, name in self._names.items()}
            return [(ids.get(str(row[0]), ""), *row) for row in self._book.rows()]

    def stop(self, job: str) -> str:
        """End the job of that id or name; what is to be said of it. Raises SQL_UNKNOWN_NAME."""
        with self._lock:
            outcome = self._book.stop(self._names.get(job, job))
            self._look()
            return outcome

    def close(self) -> None:
        """End all jobs; the checkpoints of those that keep state stay."""
        with self._lock:
            for name in self._book.running:
                self._book.stop(name)

    def _look(self) -> None:
        """See which jobs have ended, remove what they left, and forget the oldest of them."""
        for sentence in self._book.news():
            _log.info("%s", sentence)
        ended = self._book.ended
        for name in ended:
            scratch = self._scratch.pop(name, None)
            if scratch is not None:
                self._starter.forget(scratch)
        for name in ended[: max(0, len(ended) - MAX_ENDED_JOBS)]:
            self._book.forget(name)
            self._names = {one: known for one, known in self._names.items() if known != name}


def _show(result: ResultRows) -> None:
    """Rows of print sinks go to the log, as Flink's go to the output of a task manager."""
    for row in result.rows[:_ROWS_IN_LOG]:
        _log.info("%s: %s", result.sink, row)
