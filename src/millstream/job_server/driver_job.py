"""A job inside its driver: the handles of all its plans."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.job_server.driver_messages import JobOrder, SavepointWords
from millstream.job_server.errors import JobServerError
from millstream.streams.jobs.savepoints.savepoint import Savepoint
from millstream.streams.jobs.savepoints.savepoint_parts import StagedParts, stage_parts

if TYPE_CHECKING:
    from millstream.streams.jobs.handle import JobHandle

__all__ = ["DriverJob", "finish_savepoint"]


class DriverJob:
    """One job with the handles of its plans."""

    def __init__(self, order: JobOrder, handles: Sequence[JobHandle]) -> None:
        self.order = order
        self.handles = tuple(handles)
        self._turn = threading.Lock()
        """Held while a savepoint is staged and while the job stops: no other start of it may write meanwhile."""

        self._is_stopped = False
        self._told = 0
        """The number of the last event that was told; all of them each second would be much for many jobs."""

    @property
    def queries(self) -> set[str]:
        """The names of the queries that it runs in."""
        return {handle.query for handle in self.handles}

    def has_ended(self) -> bool:
        """Whether all is done. Raises JobError where it failed."""
        ended = [handle.wait(0) for handle in self.handles]
        return all(ended)

    def stop(self) -> None:
        """End it; its checkpoint stays."""
        with self._turn:
            self._is_stopped = True
            for handle in self.handles:
                handle.stop()

    def write_savepoint(self, target: Path, label: str) -> SavepointWords:
        """Write a savepoint of all its plans, each between two micro-batches of its own.

        May be called from another thread. Raises JobError SAVEPOINT_REFUSED; JobServerError JOB_STATE.
        """
        with self._turn:
            if self._is_stopped:
                raise JobServerError("JOB_STATE", f"The job {self.order.name} was stopped meanwhile.")
            staged = stage_parts(target, label, [handle.stage_savepoint for handle in self.handles])
        return finish_savepoint(staged)

    def progress(self) -> dict[str, Any]:
        """The counts of all its plans together, with the events since the last call."""
        from millstream.streams.jobs.handle import JobHandle

        whole = self.handles[0] if len(self.handles) == 1 else JobHandle(self.order.name, self.handles)  # type: ignore[arg-type]
        found = whole.progress()
        news = tuple(event for event in found.events if event.number > self._told)
        self._told = news[-1].number if news else self._told
        return asdict(replace(found, events=news))


def finish_savepoint(staged: StagedParts) -> SavepointWords:
    """The savepoint, whole and described. Raises JobError SAVEPOINT_REFUSED."""
    parts: list[Savepoint] = staged.finish()
    sizes = [size for part in parts for size, _ in part.files.values()]
    return SavepointWords(
        str(staged.target),
        [part.id for part in parts],
        max(part.time_ms for part in parts),
        len(sizes),
        sum(sizes),
        [line for part in parts for line in part.lines()],
    )
