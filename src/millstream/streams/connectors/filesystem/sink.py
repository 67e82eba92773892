"""The filesystem sink: files named by job, batch and task, so that a replay overwrites them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from millstream.streams.connectors.filesystem.part_files import (
    FORMATS,
    FileLayout,
    PartFiles,
    hidden_path_of,
    written_files,
)
from millstream.streams.connectors.filesystem.partition_times import CommitPolicy, PartitionClock, time_reader
from millstream.streams.connectors.filesystem.source import Listing
from millstream.streams.connectors.options import bytes_of, milliseconds
from millstream.streams.connectors.table import SinkRequest
from millstream.streams.errors import JobError
from millstream.streams.functions.calendar import zone_of
from millstream.streams.plan.expressions import Literal
from millstream.streams.plan.nodes import Project
from millstream.streams.plan.nodes import Sink as Insert
from millstream.streams.plan.tables import DEFAULT_NAME, Table, local_directory, partition_name
from millstream.streams.spark.sinks.earlier import BatchNote
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written
from millstream.streams.state.atomic_file import write_file

__all__ = ["FORMATS", "FileSink", "Swap", "commit_policy", "file_sink"]


_SUFFIX = "-swap.json"


class Swap(msgspec.Struct, frozen=True):
    """Files to name and files to remove, all under `root`; `marks` say that a partition is whole, and go first."""

    root: str
    new: list[str]
    old: list[str]
    marks: list[str]

    @classmethod
    def complete(cls, notes: Path) -> None:
        """Do what is left of all that was noted in that directory."""
        for file in sorted(notes.glob(f"[!.]*{_SUFFIX}")):
            msgspec.json.decode(file.read_bytes(), type=cls)._run()
            file.unlink()

    def run(self, notes: Path, number: int) -> None:
        """Note it under the sink's number and do it."""
        file = notes / f"{number}{_SUFFIX}"
        write_file(file, msgspec.json.encode(self))
        self._run()
        file.unlink()

    def _run(self) -> None:
        root = Path(self.root)
        for path in self.marks:
            (root / path).unlink(missing_ok=True)
        for path in self.new:
            unnamed = hidden_path_of(root / path)
            if unnamed.exists():
                unnamed.replace(root / path)
        for path in self.old:
            (root / path).unlink(missing_ok=True)


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


def file_sink(request: SinkRequest) -> FileSink:
    """The sink of the INSERT. Raises JobError SINK_FAILED for options that cannot be."""
    insert = request.insert
    table, options = insert.table, insert.table.options
    layout = FileLayout(
        local_directory(options["path"]),
        insert.input.schema,
        options.get("format", "json").lower(),
        table.partition_keys,
        options.get("partition.default-name", DEFAULT_NAME),
        size_bytes(options.get("sink.rolling-policy.file-size", "128 MB")),
        options,
    )
    return FileSink(
        table.name,
        layout,
        number=request.number,
        overwrites=insert.overwrites,
        emptied=_fixed_partition(insert, layout.default_name),
        policy=commit_policy(table),
    )


def commit_policy(table: Table) -> CommitPolicy | None:
    """When partitions are whole; None where nobody is told. Raises JobError SINK_FAILED."""
    options = table.options
    if "sink.partition-commit.policy.kind" not in options or not table.partition_keys:
        return None
    mark = options.get("sink.partition-commit.success-file.name", "_SUCCESS")
    delay_ms = milliseconds(options.get("sink.partition-commit.delay", "0 s"))
    if options.get("sink.partition-commit.trigger", "process-time").lower() != "partition-time":
        return CommitPolicy(mark, delay_ms)
    formatter = options.get("partition.time-extractor.timestamp-formatter", "")
    try:
        reader = time_reader(formatter)
    except ValueError as error:
        words = f"Times of partitions of {table.name} cannot be read as {formatter!r}: {error}."
        raise JobError("SINK_FAILED", words, remedy="Use each of yyyy MM dd HH mm ss SSS at most once.") from None
    name = options.get("sink.partition-commit.watermark-time-zone", "UTC")
    zone = zone_of(name)
    if zone is None:
        raise JobError("SINK_FAILED", f"{name!r} is no time zone.", remedy="Use one such as 'Europe/Berlin'.")
    pattern = options.get("partition.time-extractor.timestamp-pattern", "")
    _check_pattern(table, pattern)
    default_name = options.get("partition.default-name", DEFAULT_NAME)
    return CommitPolicy(mark, delay_ms, PartitionClock(table.partition_keys, pattern, reader, zone, default_name))


def _check_pattern(table: Table, pattern: str) -> None:
    names = sorted(table.partition_keys, key=len, reverse=True)
    for word in re.findall(r"\$\w*", pattern):
        if not word[1:].startswith(tuple(names)):
            words = f"The time of a partition of {table.name} is read from {word}, by which it is not partitioned."
            raise JobError("SINK_FAILED", words, remedy=f"Columns are {', '.join(f'${name}' for name in names)}.")


def _fixed_partition(insert: Insert, default_name: str) -> str | None:
    """The directory of an INSERT whose PARTITION clause gives plain values of all partition columns."""
    keys = insert.table.partition_keys
    if not keys or not set(keys) <= set(insert.fixed) or not isinstance(insert.input, Project):
        return None
    values = dict(insert.input.columns)
    names = []
    for key in keys:
        value = values[key]
        if not isinstance(value, Literal) or not isinstance(value.value, str | int) or isinstance(value.value, bool):
            return None
        names.append(partition_name(key, str(value.value), default_name))
    return "/".join(names)


def size_bytes(text: str) -> int:
    """Bytes of a text such as '128 MB'. Raises JobError SINK_FAILED."""
    try:
        return bytes_of(text)
    except ValueError:
        raise JobError("SINK_FAILED", f"{text!r} is no size.", remedy="Write it as in '128 MB'.") from None
