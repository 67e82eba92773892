"""What tasks that judge events report to the driver: events and hits by rule, a spool file for each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from millstream.streams.spark.source.partition import Slice
from millstream.streams.state.spool import Spool

__all__ = ["TaskReport", "report_name", "report_spool", "total_of"]


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
