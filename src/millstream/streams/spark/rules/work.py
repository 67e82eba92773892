"""What judging found, left by workers for the driver: events and hits by rule, a file for each task."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import msgspec

from millstream.streams.spark.source.partition import Slice
from millstream.streams.state.atomic_file import write_file

__all__ = ["JudgedSlices", "Work"]

_SUFFIX = ".work"


class Work(msgspec.Struct, omit_defaults=True):
    """Events that a version judged, hits by the rule's id, and the newest event time by queue where that is read.

    `atoms` counts the events in which an atom that was looked for was found, `known` the values that the stage
    remembered, of `known` and `new` ones.
    """

    version: int = 0
    events: int = 0
    hits: dict[str, int] = {}
    times_us: dict[str, int] = {}
    atoms: dict[str, int] = {}
    known: int = 0
    new: int = 0

    def add(self, other: Work) -> None:
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


_DECODER = msgspec.json.Decoder(Work)


class JudgedSlices:
    """The files in `directory`. A replay writes the same file again, so nothing counts twice."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "work"

    def put(self, slices: tuple[Slice, ...], work: Work) -> None:
        """Keep what was found in a task's slices."""
        if not slices:
            return
        name = f"{slices[0].queue.replace('/', '_')}-{slices[0].start}-{slices[-1].end}{_SUFFIX}"
        write_file(self._directory / name, msgspec.json.encode(work), durable=False)

    def take(self) -> Work:
        """The sum of all, which are removed."""
        return self._sum(remove=True)

    def look(self) -> Work:
        """The sum of all, which stay."""
        return self._sum(remove=False)

    def _sum(self, *, remove: bool) -> Work:
        whole = Work()
        for path in self._directory.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                whole.add(_DECODER.decode(path.read_bytes()))
                if remove:
                    path.unlink()
        return whole
