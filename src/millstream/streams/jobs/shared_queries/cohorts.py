"""Stateless jobs over one table that share one query: which may share, and how they run."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import MillstreamError
from millstream.streams.connectors.registry import connector_of
from millstream.streams.errors import JobError
from millstream.streams.jobs.adoption import HALF_DONE, DeliveryNote, batches_in
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.identity import SHARED_FILE, shared_query
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.pipeline import Pipeline, StreamPipeline
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.jobs.settings import STATE_PLACES
from millstream.streams.plan.branch import branch_of
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.plan.tables import Table
from millstream.streams.plan.user_calls import calls_users_functions
from millstream.streams.state.atomic_file import write_file

__all__ = ["MAX_SHARED", "Cohort", "CohortMember", "cohorts_of", "leave", "may_share", "table_of"]


MAX_SHARED: Final = 2_000
"""Jobs of one query, at most."""

_OWN_SETTINGS = ("pipeline.name",)
"""Settings in which jobs of one query may differ."""

Plan = JobPlan | QueryPlan


def cohorts_of(plans: Sequence[Plan], names: Sequence[str], root: Path) -> list[list[int]]:
    """The places of the plans that are started together; `root` holds the checkpoints of jobs by `names`."""
    tables: list[Table] = []
    groups: dict[Hashable, list[int]] = {}
    for place, (plan, name) in enumerate(zip(plans, names, strict=True)):
        table = table_of(plan)
        if table is None or not may_share(plan):
            groups[("alone", place)] = [place]
            continue
        if table not in tables:
            tables.append(table)
        settings = tuple(sorted(item for item in plan.settings.items() if item[0] not in _OWN_SETTINGS))
        key = (tables.index(table), settings, _standing(root / name / table.name))
        group = groups.setdefault(key if None not in key else ("alone", place), [])
        if len(group) >= MAX_SHARED:
            group = groups.setdefault(("full", place // MAX_SHARED, key), [])
        group.append(place)
    return list(groups.values())


def may_share(plan: Plan) -> bool:
    """Whether a job can share a query and is told that it may."""
    settings = {name: value.lower() for name, value in plan.settings.items()}
    if settings.get("millstream.task-type") == "error-sensitive" or settings.get("execution.runtime-mode") == "batch":
        return False
    elsewhere = any(settings.get(name) for name in STATE_PLACES) or settings.get("state.mirror", "none") != "none"
    if elsewhere or settings.get("execution.state-recovery.path"):
        return False
    # What becomes of a bad value may be that the job ends.
    return settings.get("millstream.bad-cast", "null") == "null" and table_of(plan) is not None


def table_of(plan: Plan) -> Table | None:
    """The one table that a job without state reads, from which it only appends to others; None for other jobs."""
    if isinstance(plan, QueryPlan):
        return None
    found: Table | None = None
    for sink in plan.sinks:
        branch = branch_of(sink.input)
        if branch is None or calls_users_functions(sink.input) or sink.overwrites:
            return None
        if not connector_of(sink.table.connector).merges:
            return None
        if found is not None and branch.scan.table != found:
            return None
        found = branch.scan.table
    # A file sink tells readers which of its partitions are whole by the event time of all that it reads.
    files = any(connector_of(sink.table.connector).commits_partitions for sink in plan.sinks)
    return None if found is None or files or not connector_of(found.connector).judges else found


def _standing(directory: Path) -> Hashable:
    """Equal for jobs that can go on together; None for one that has a query of its own."""
    query = shared_query(directory)
    if query is not None:
        return query
    own = Checkpoint.find(directory)
    if own is None:
        return "fresh"
    return None if own.has_run else msgspec.json.encode(own.positions(), order="deterministic")


SETTLE_S: Final = 0.5
"""How long a query waits for other jobs to leave before it goes on without the one that has left."""


def check_change(directory: Path, plan_fingerprint: str, root: Path) -> None:
    """Raise JobError CHECKPOINT_MISMATCH if the query that a changed job shares has a micro-batch that is half done."""
    own, name = Checkpoint.find(directory), shared_query(directory)
    query = None if name is None else Checkpoint.find(root / name)
    if own is None or query is None or own.identity.fingerprint == plan_fingerprint:
        return
    note = DeliveryNote.read(query.directory)
    if note.begun > max(batches_in(query.spark / "commits"), default=-1):
        words = f"The micro-batch {note.begun} of the old query in {query.directory} was begun and is not over."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy=HALF_DONE)


def leave(directories: Sequence[Path], root: Path) -> None:
    """Let the jobs with those checkpoints go on by themselves from where the queries stand that they share, if any."""
    queries = set()
    for directory in directories:
        name, own = shared_query(directory), Checkpoint.find(directory)
        if name is None or own is None:
            continue
        query = Checkpoint.find(root / name)
        if query is not None:
            query.find_cut_batch()
            own.begin_at(query.delivered_ends())
        (directory / SHARED_FILE).unlink()
        queries.add(name)
    for name in queries:
        if not _sharing(root, name):
            shutil.rmtree(root / name, ignore_errors=True)


def _sharing(root: Path, query: str) -> list[Path]:
    """The checkpoints of the jobs that share a query."""
    return [file.parent for file in root.glob(f"*/*/{SHARED_FILE}") if file.read_text() == query]


class Cohort:
    """A query that several jobs share. `start` starts it for those that are left.

    `root` holds all checkpoints, `query` is the name of the query's; `members` are the jobs' outputs by their
    directories. Jobs that shared the query earlier and are not among them leave it. `finish` has a micro-batch
    delivered that was cut short, before jobs leave.
    """

    def __init__(
        self,
        root: Path,
        query: str,
        members: Mapping[Path, list[Output]],
        start: Callable[[Mapping[Path, list[Output]]], Pipeline],
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        self._root = root
        self.query = query
        self._members = dict(members)
        self._leaving: list[Path] = []
        self._start = start
        self._finish = finish
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._error: JobError | None = None
        leave([directory for directory in _sharing(root, query) if directory not in members], root)
        for directory in members:
            write_file(directory / SHARED_FILE, query.encode())
        self._pipeline = start(dict(self._members))

    def progress(self) -> JobProgress:
        """The counts of the whole query."""
        return self._pipeline.progress()

    def wait(self, timeout_s: float) -> bool:
        """Whether the query has ended by itself within that time."""
        pipeline = self._pipeline
        return pipeline.wait(timeout_s) and pipeline is self._pipeline and self._timer is None

    def failure(self) -> JobError | None:
        """Why the query failed."""
        return self._error or self._pipeline.failure()

    def stop(self, directory: Path) -> None:
        """End the job of that checkpoint; the query goes on without it, unless all others are stopped with it."""
        with self._lock:
            if self._members.pop(directory, None) is None:
                return
            self._leaving.append(directory)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            ended = self._pipeline.wait(0)
            self._pipeline.stop()
            if self._members and not ended:
                self._timer = threading.Timer(SETTLE_S, self._go_on)
                self._timer.daemon = True
                self._timer.start()

    @contextlib.contextmanager
    def between_batches(self) -> Iterator[None]:
        """While this lasts no micro-batch of the query runs, and no job leaves it.

        Raises JobError SAVEPOINT_REFUSED as `StreamPipeline.between_batches`, and for a query without micro-batches.
        """
        with self._lock:
            if not isinstance(self._pipeline, StreamPipeline):
                words = f"The query {self.query} does not run in micro-batches."
                raise JobError("SAVEPOINT_REFUSED", words, remedy="Write the savepoint once its jobs are stopped.")
            with self._pipeline.between_batches():
                yield

    def _go_on(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            try:
                self._finish()
                leave(self._leaving, self._root)
                self._leaving.clear()
                self._pipeline = self._start(dict(self._members))
            except MillstreamError as error:
                self._error = error if isinstance(error, JobError) else JobError("JOB_FAILED", str(error))
            self._timer = None


class CohortMember:
    """One job of a cohort, as a pipeline. Its counts are those of the whole query, but for the sinks of others."""

    def __init__(self, cohort: Cohort, directory: Path, outputs: Sequence[Output]) -> None:
        self._cohort = cohort
        self._directory = directory
        self._sinks = {output.sink.name for output in outputs}
        self._stopped: JobProgress | None = None

    @property
    def query(self) -> str:
        """The name of the query that it shares."""
        return self._cohort.query

    def between_batches(self) -> AbstractContextManager[None]:
        """As that of its cohort: the job stands where the query does."""
        return self._cohort.between_batches()

    def progress(self) -> JobProgress:
        """The counts now."""
        if self._stopped is not None:
            return self._stopped
        found = self._cohort.progress()
        return replace(
            found,
            rows_out={name: count for name, count in found.rows_out.items() if name in self._sinks},
            rows_by={name: counts for name, counts in found.rows_by.items() if name in self._sinks},
        )

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within that time."""
        return self._stopped is not None or self._cohort.wait(timeout_s)

    def failure(self) -> JobError | None:
        """Why it failed; None while it runs or if it did not."""
        return None if self._stopped is not None else self._cohort.failure()

    def stop(self) -> None:
        """End it; the others of its query go on."""
        if self._stopped is not None:
            return
        found = self.progress()
        self._cohort.stop(self._directory)
        self._stopped = replace(found, state="failed" if found.state == "failed" else "ended")
