"""What the source `rules` reads and reports: where its rules are, and events and matches by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millstream.streams.spark.source.position import Slice
from millstream.streams.state.spool import Spool

__all__ = ["DEFAULT_ALLOWANCE_MS", "Judged", "TaskReport", "report_name", "report_spool", "total_of"]


DEFAULT_ALLOWANCE_MS = 60_000
"""How long one call of a rule's user function may hold a worker that the stage cannot stop, where a table is silent."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The rules of a read: `store` has them, `directory` is the job's own place for versions in use and notes.

    `version` judges a batch; micro-batches have theirs in their positions. `time_fields` tell an event's time, the
    first that is there. `python_path` is where the rules' user functions are found beside what a worker has.
    """

    store: str
    directory: str
    version: int = 0
    time_fields: tuple[str, ...] = ()
    allowance_ms: int = DEFAULT_ALLOWANCE_MS
    python_path: tuple[str, ...] = ()


class TaskReport(msgspec.Struct, omit_defaults=True):
    """What judging some slices of a topic has found."""

    version: int = 0
    """The version of the rules that judged."""

    events: int = 0
    """Events that were judged."""

    hits: dict[str, int] = {}
    """Events that a rule fits, by its id."""

    times_us: dict[str, int] = {}
    """The newest event time by queue in microseconds since 1970, where event time is read."""

    atoms: dict[str, int] = {}
    """Events in which an atom that was looked for was found, by the atom."""

    known: int = 0
    """Values that the stage remembered."""

    new: int = 0
    """Values that the stage had not seen before."""

    def add(self, other: TaskReport) -> None:
        """Take the counts of another."""
        self.version = max(self.version, other.version)
        self.events += other.events
        self.hits = dict(Counter(self.hits) + Counter(other.hits))
        self.atoms = dict(Counter(self.atoms) + Counter(other.atoms))
        self.known += other.known
        self.new += other.new
        for queue, time_us in other.times_us.items():
            self.saw(queue, time_us)

    def saw(self, queue: str, time_us: int) -> None:
        """An event of that time came from the queue."""
        self.times_us[queue] = max(time_us, self.times_us.get(queue, time_us))


def report_spool(directory: Path) -> Spool[TaskReport]:
    """The reports of tasks that judge by rules; `directory` is where the job keeps what it knows of those."""
    return Spool(directory / "work", ".work", TaskReport)


def report_name(slices: tuple[Slice, ...]) -> str:
    """The name of the report on some slices, at least one; a replay of the slices writes the same file again."""
    return f"{slices[0].queue}-{slices[0].start}-{slices[-1].end}"


def total_of(reports: Iterable[TaskReport]) -> TaskReport:
    """The sum of all."""
    total = TaskReport()
    for report in reports:
        total.add(report)
    return total
