"""The jobs of a gateway, which all its sessions see: INSERTs go on when their session ends."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from millstream.model.errors import MillstreamError
from millstream.streams.jobs.job_book import COLUMNS, Job, JobBook
from millstream.streams.plan.nodes import JobPlan, QueryPlan

if TYPE_CHECKING:
    from millstream.streams.jobs.progress import ResultRows

__all__ = ["JOB_COLUMNS", "MAX_JOBS", "GatewayJobs", "JobStarter"]

_log = logging.getLogger(__name__)

MAX_JOBS: Final = 100
"""Jobs of INSERTs that run at the same time at most."""

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


class GatewayJobs:
    """Names jobs, numbers them and ends them. Safe to call from any thread."""

    def __init__(self, starter: JobStarter) -> None:
        self._starter = starter
        self._lock = threading.Lock()
        self._book = JobBook()
        self._names: dict[str, str] = {}

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
        job_id = uuid.uuid4().hex
        with self._lock:
            for _ in self._book.news():  # Ended jobs are known as such from then on.
                pass
            if len(self._book.running) >= MAX_JOBS:
                raise MillstreamError("GATEWAY_FULL", f"{MAX_JOBS} jobs run.")
            name = self._book.free_name(plan)
            keeps_state = "pipeline.name" in plan.settings
            job = self._starter.start(plan, name if keeps_state else f"job-{job_id}", _show, keeps_state=keeps_state)
            self._names = {one: known for one, known in self._names.items() if known != name}
            self._names[job_id] = name
            self._book.add(name, job)
        return job_id, job

    def rows(self) -> list[tuple[str | int | None, ...]]:
        """What SHOW JOBS says, in the order of the starts."""
        with self._lock:
            for _ in self._book.news():
                pass
            ids = {name: job_id for job_id, name in self._names.items()}
            return [(ids[str(row[0])], *row) for row in self._book.rows()]

    def stop(self, job: str) -> str:
        """End the job of that id or name; what is to be said of it. Raises SQL_UNKNOWN_NAME."""
        with self._lock:
            return self._book.stop(self._names.get(job, job))

    def close(self) -> None:
        """End all jobs; the checkpoints of those that keep state stay."""
        with self._lock:
            for name in self._book.running:
                self._book.stop(name)


def _show(result: ResultRows) -> None:
    """Rows of print sinks go to the log, as Flink's go to the output of a task manager."""
    for row in result.rows[:_ROWS_IN_LOG]:
        _log.info("%s: %s", result.sink, row)
