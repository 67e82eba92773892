"""The background jobs of a shell or a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from millstream.model.errors import MillstreamError
from millstream.streams.jobs.progress import JobProgress, watermark_text

if TYPE_CHECKING:
    from millstream.streams.plan.nodes import JobPlan

__all__ = ["COLUMNS", "Job", "JobBook", "directory_of"]

COLUMNS = (
    *("job", "state", "rows_in", "rows_out", "rows_per_s", "behind", "watermark"),
    *("late", "malformed", "without_event_time", "trouble"),
)


class Job(Protocol):
    """A started job, as `JobHandle` is one."""

    def progress(self) -> JobProgress: ...
    def wait(self, timeout_s: float) -> bool: ...
    def stop(self) -> None: ...


@dataclass(slots=True)
class _Entry:
    job: Job
    failure: str = ""
    is_over: bool = False
    was_stopped: bool = False


class JobBook:
    """Knows the jobs of one shell or gateway by name."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def free_name(self, plan: JobPlan) -> str:
        """The name for a plan's job: that of 'pipeline.name', else of its tables; with a number if it is taken."""
        wanted = plan.settings.get("pipeline.name") or f"insert-into-{'-'.join(sink.table.name for sink in plan.sinks)}"
        name, number = wanted, 1
        while name in self._entries and not self._entries[name].is_over:
            number += 1
            name = f"{wanted}-{number}"
        return name

    def add(self, name: str, job: Job) -> None:
        """A job was started under a free name."""
        self._entries.pop(name, None)
        self._entries[name] = _Entry(job)

    def news(self) -> Iterator[str]:
        """One sentence for each job that has ended since the last call."""
        for name, entry in self._entries.items():
            if not entry.is_over and self._has_ended(entry):
                yield f"The job {name} has failed: {entry.failure}" if entry.failure else f"The job {name} has ended."

    def rows(self) -> list[tuple[str | int | None, ...]]:
        """What SHOW JOBS says, in the order of the starts."""
        found: list[tuple[str | int | None, ...]] = []
        for name, entry in self._entries.items():
            progress = entry.job.progress()
            state = "stopped" if entry.was_stopped else progress.state
            out = sum(progress.rows_out.values())
            speed, watermark = round(progress.rows_per_s), watermark_text(progress)
            found.append(
                (name, state, progress.rows_in, out, speed, progress.behind, watermark, progress.late,
                 progress.malformed, sum(progress.without_event_time.values()), progress.trouble)
            )  # fmt: skip
        return found

    def stop(self, name: str) -> str:
        """End a job; what is to be said of it. Raises MillstreamError SQL_UNKNOWN_NAME if there is none."""
        entry = self._entries.get(name)
        if entry is None:
            near = get_close_matches(name, list(self._entries), 1)
            remedy = f'Did you mean "{near[0]}"?' if near else "SHOW JOBS lists the jobs."
            raise MillstreamError("SQL_UNKNOWN_NAME", f"There is no job {name!r}.", remedy=remedy)
        if entry.is_over:
            return f"The job {name} had ended."
        entry.job.stop()
        entry.is_over = entry.was_stopped = True
        return f"The job {name} is stopped; its checkpoint is kept."

    def forget(self, name: str) -> None:
        """Know no more of a job."""
        self._entries.pop(name, None)

    @property
    def ended(self) -> list[str]:
        """The names of those that are known to have ended or to be stopped, in the order of their starts."""
        return [name for name, entry in self._entries.items() if entry.is_over]

    @property
    def running(self) -> list[str]:
        """The names of those that run."""
        return [name for name, entry in self._entries.items() if not entry.is_over]

    def _has_ended(self, entry: _Entry) -> bool:
        try:
            entry.is_over = entry.job.wait(0)
        except MillstreamError as failure:
            entry.failure, entry.is_over = str(failure), True
        return entry.is_over


def directory_of(name: str) -> str:
    """The name as one part of a path: any name may be given to a job."""
    return quote(name, safe="").replace(".", "%2E")
