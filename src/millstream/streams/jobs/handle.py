"""The handle of a running job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from millstream.streams.errors import JobError
from millstream.streams.jobs.job_events import merge_events
from millstream.streams.jobs.pipeline import LatePipeline, PausingPipeline, Pipeline
from millstream.streams.jobs.progress import JobProgress, JobState
from millstream.streams.jobs.savepoints.savepoint import Savepoint, StagedSavepoint, stage_savepoint
from millstream.streams.jobs.state_size import StateSize

__all__ = ["JobHandle"]


_STOPPED = "Stop it and write the savepoint then."


class JobHandle:
    """A started job: one pipeline per source table. If one fails the others are stopped."""

    def __init__(
        self, name: str, pipelines: Sequence[Pipeline], *, query: str = "", directory: Path | None = None
    ) -> None:
        self.name = name
        self.query = query or name
        """Equal for jobs that share one query."""
        self._pipelines = tuple(pipelines)
        self._directory = directory
        self._state = None if directory is None else StateSize(directory)

    def progress(self) -> JobProgress:
        """The counts of all pipelines together; the watermark is the earliest one."""
        parts = [pipeline.progress() for pipeline in self._pipelines]
        rows_out: Counter[str] = Counter()
        late_by: Counter[str] = Counter()
        untimed: Counter[str] = Counter()
        hits: Counter[str] = Counter()
        failed_calls: Counter[str] = Counter()
        cold_by_broker: Counter[str] = Counter()
        rows_between: Counter[str] = Counter()
        rows_by: dict[str, dict[str, int]] = {}
        for part in parts:
            rows_out.update(part.rows_out)
            late_by.update(part.late_by)
            untimed.update(part.without_event_time)
            hits.update(part.hits)
            failed_calls.update(part.failed_calls)
            cold_by_broker.update(part.cold_by_broker)
            rows_between.update(part.rows_between)
            for sink, counts in part.rows_by.items():
                rows_by[sink] = dict(Counter(rows_by.get(sink, {})) + Counter(counts))
        watermarks = [part.watermark_ms for part in parts if part.watermark_ms is not None]
        times_s = [part.batch_s for part in parts if part.batch_s is not None]
        sizes = [part.state_bytes for part in parts if part.state_bytes is not None]
        if self._state is not None and (own_bytes := self._state.measure()) is not None:
            sizes.append(own_bytes)
        lags = [part.behind for part in parts if part.behind is not None]
        return JobProgress(
            rows_in=sum(part.rows_in for part in parts),
            malformed=sum(part.malformed for part in parts),
            late=sum(part.late for part in parts),
            rows_out=dict(rows_out),
            batches=sum(part.batches for part in parts),
            rows_per_s=sum(part.rows_per_s for part in parts),
            watermark_ms=min(watermarks, default=None),
            behind=sum(lags) if lags else None,
            state=_state([part.state for part in parts]),
            late_by=dict(late_by),
            without_event_time=dict(untimed),
            malformed_last_minute=sum(part.malformed_last_minute for part in parts),
            hits=dict(hits),
            queues=tuple(queue for part in parts for queue in part.queues),
            failed_calls=dict(failed_calls),
            rows_between=dict(rows_between),
            rows_by=rows_by,
            open_windows=tuple(windows for part in parts for windows in part.open_windows),
            notices=tuple(dict.fromkeys(notice for part in parts for notice in part.notices)),
            trouble=next((part.trouble for part in parts if part.trouble), None),
            cold_by_broker=dict(cold_by_broker),
            batch_s=max(times_s, default=None),
            checkpoint_ms=min((part.checkpoint_ms for part in parts if part.checkpoint_ms is not None), default=None),
            restarts=sum(part.restarts for part in parts),
            state_bytes=sum(sizes) if sizes else None,
            read_to_ms=min((part.read_to_ms for part in parts if part.read_to_ms is not None), default=None),
            events=merge_events(part.events for part in parts),
        )

    def write_savepoint(self, target: Path, name: str = "") -> Savepoint:
        """A savepoint of the job in `target`, which must not exist, also while it runs.

        No micro-batch runs while the files are held, which takes a name in the file system for each; they are read
        while the job goes on. Of a job that shares a query with others it holds where that query stands. Raises
        JobError SAVEPOINT_REFUSED where the job waits for its servers or runs in batch mode; OSError.
        """
        return self.stage_savepoint(target, name).finish()

    def stage_savepoint(self, target: Path, name: str = "") -> StagedSavepoint:
        """The files of a savepoint, held between two micro-batches; its `finish` reads them. Raises as above."""
        directory, pipelines = self._directory, list(self._pipelines)
        if len(pipelines) == 1 and isinstance(pipelines[0], LatePipeline):
            pipelines = list(pipelines[0].find_pipelines())
            if not pipelines:
                words = f"The job {self.name} waits for its servers and has not started."
                raise JobError("SAVEPOINT_REFUSED", words, remedy="Try again once it runs.")
        pausing = [one for one in pipelines if isinstance(one, PausingPipeline)]
        if directory is None or len(pausing) < len(pipelines):
            words = f"The job {self.name} has no checkpoint, or does not run in micro-batches."
            raise JobError("SAVEPOINT_REFUSED", words, remedy=_STOPPED)
        return stage_savepoint(directory, target, name, pause=lambda: _between_batches(pausing))

    def stop(self) -> None:
        """End the job; its checkpoint stays. Stopping twice is no error."""
        for pipeline in self._pipelines:
            pipeline.stop()

    def wait(self, timeout_s: float) -> bool:
        """Whether the job has ended within `timeout_s`. Raises JobError JOB_FAILED (or the sink's own) if it failed."""
        deadline_s = time.monotonic() + timeout_s
        ended = True
        for pipeline in self._pipelines:
            ended = pipeline.wait(max(0.0, deadline_s - time.monotonic())) and ended
        for pipeline in self._pipelines:
            failure = pipeline.failure()
            if failure is not None:
                self.stop()
                raise failure
        return ended


@contextmanager
def _between_batches(pipelines: Sequence[PausingPipeline]) -> Iterator[None]:
    """While this lasts none of the queries runs a micro-batch."""
    with ExitStack() as held:
        for pipeline in pipelines:
            held.enter_context(pipeline.between_batches())
        yield


def _state(states: Sequence[JobState]) -> JobState:
    if "failed" in states:
        return "failed"
    return "running" if "running" in states else "ended"
