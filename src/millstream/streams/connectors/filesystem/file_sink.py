"""The filesystem sink: files named by job, batch and task, so that a replay overwrites them.

Tasks write hidden files (a leading dot); the commit renames them. A reader that ignores hidden files sees only whole
batches, file by file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from millstream.streams.connectors.filesystem.file_formats import FORMATS
from millstream.streams.connectors.filesystem.listing import Listing
from millstream.streams.connectors.filesystem.part_files import FileLayout, PartFiles, hidden_path_of, written_files
from millstream.streams.connectors.filesystem.partition_times import CommitPolicy
from millstream.streams.connectors.filesystem.swap import Swap
from millstream.streams.errors import JobError
from millstream.streams.spark.sinks.earlier import BatchNote
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written

__all__ = ["FORMATS", "FileSink"]


class FileSink:
    """Writes rows to files of one directory in one of `FORMATS`.

    `number` is the sink's place in its job: several INSERTs may go to one directory, each with files of its own.
    With `overwrites` a micro-batch replaces what the table holds, or what those partitions hold that get rows;
    `emptied` is a partition that is replaced also where it gets none. `policy` says when partitions are whole; None:
    nobody is told.
    """

    def __init__(
        self,
        name: str,
        layout: FileLayout,
        *,
        number: int = 0,
        overwrites: bool = False,
        emptied: str | None = None,
        policy: CommitPolicy | None = None,
    ) -> None:
        if layout.file_format not in FORMATS:
            words = f"The table {name} has the format {layout.file_format!r}; known are {list(FORMATS)}."
            raise JobError("SINK_FAILED", words)
        self.name = name
        self.schema = layout.schema
        self.layout = layout
        self.policy = policy
        self.touched: tuple[str, ...] = ()
        self._number = number
        self.overwrites = overwrites
        self.emptied = emptied
        self._attempt: Attempt | None = None
        self._repeated = False

    def begin(self, attempt: Attempt) -> bool:
        """Note the micro-batch; a repeated one writes the same files again."""
        file = attempt.notes / f"{attempt.number}.json"
        note = BatchNote.read(file)
        self._attempt = attempt
        self._repeated = note is not None and note.batch_id == attempt.batch_id
        if not self._repeated:
            BatchNote(attempt.batch_id, {}).write(file)
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer of hidden files."""
        name = f"{_prefix(task.job_id, self._number, task.batch_id)}{task.partition:05d}"
        return PartFiles(self.layout, name)

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Give the batch's files their names; what an earlier attempt of it left and this one did not write goes.

        `touched` are then the directories that got rows, below the table's.
        """
        new = sorted(path for part in written for path in written_files(part.message))
        self.touched = tuple(sorted({os.path.dirname(path) for path in new}))
        try:
            if self.overwrites:
                self._swap(new)
            else:
                self._add(new)
        except OSError as error:
            raise JobError("SINK_FAILED", f"Cannot complete the files of {self.name}: {error}.") from None

    def _add(self, new: Sequence[str]) -> None:
        for path in new:
            place = self.layout.directory / path
            unnamed = hidden_path_of(place)
            if unnamed.exists():
                unnamed.replace(place)
        if self._repeated and self._attempt is not None:
            kept = set(new)
            prefix = _prefix(self._attempt.job_id, self._number, self._attempt.batch_id)
            for path in self._left_by(prefix):
                if path not in kept:
                    (self.layout.directory / path).unlink()

    def _left_by(self, prefix: str) -> Iterator[str]:
        for directory, _, names in os.walk(self.layout.directory):
            for name in names:
                if name.removeprefix(".").startswith(prefix):
                    yield os.path.relpath(os.path.join(directory, name), self.layout.directory)

    def _swap(self, new: Sequence[str]) -> None:
        assert self._attempt is not None
        if self.emptied is not None and self.emptied not in self.touched:
            self.touched += (self.emptied,)
        replaced = self.touched if self.layout.partition else ("",)
        kept = set(new)
        old = [path for directory in replaced for path in self._list_visible(directory) if path not in kept]
        marks = [] if self.policy is None else [os.path.join(directory, self.policy.mark) for directory in replaced]
        Swap(str(self.layout.directory.absolute()), list(new), old, marks).run(self._attempt.notes, self._number)

    def _list_visible(self, directory: str) -> Iterator[str]:
        """The files that readers see; those of other INSERTs of this job stay."""
        assert self._attempt is not None
        job = f"part-{self._attempt.job_id}-"
        own = f"{job}{self._number:03d}-"
        root = self.layout.directory / directory
        for path in Listing(Path(), root, "").candidates() if root.is_dir() else ():
            if path.name.startswith(own) or not path.name.startswith(job):
                yield os.path.relpath(path, self.layout.directory)


def _prefix(job_id: str, number: int, batch_id: int) -> str:
    return f"part-{job_id}-{number:03d}-{batch_id:08d}-"
