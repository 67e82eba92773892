"""The code of the connector: each file is a queue, its offsets count lines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from millstream.streams.connectors.protocols import Offsets, SinkBatch, SinkTask, SourcePartition
from millstream.streams.connectors.table import ConnectedTable


class FolderSource:
    """Reads the lines of all files, in the order of each file."""

    def __init__(self, table: ConnectedTable) -> None:
        self._directory = Path(table.options["path"])
        self._share = table.number("lines-per-task")
        self._names = table.schema.names

    def first(self) -> Offsets:
        """All files from their beginning."""
        return {}

    def latest(self) -> Offsets:
        """How many whole lines each file has."""
        files = sorted(self._directory.glob("*.jsonl"))
        return {file.name: file.read_bytes().count(b"\n") for file in files}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        """Shares of the new lines."""
        return [
            SourcePartition(name, begin, min(begin + self._share, last))
            for name, last in sorted(end.items())
            for begin in range(start.get(name, 0), last, self._share)
        ]

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        """The lines of a share as rows."""
        with (self._directory / partition.queue).open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in itertools.islice(lines, partition.start, partition.end)]
        yield pa.RecordBatch.from_pylist([{name: row.get(name) for name in self._names} for row in rows])


class FolderSink:
    """Writes one file per task, whose name tells job, micro-batch and task: a replay replaces it."""

    def __init__(self, table: ConnectedTable) -> None:
        self._directory = Path(table.options["path"])

    def writer(self, task: SinkTask) -> FolderWriter:
        """A writer of a file that no reader sees yet."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return FolderWriter(self._directory / f"{task.job_id}-{task.batch_id}-{task.partition}.unfinished")

    def commit(self, batch: SinkBatch, messages: Sequence[bytes]) -> None:
        """Give the files their names."""
        for message in messages:
            unfinished = self._directory / message.decode()
            if unfinished.exists():
                unfinished.replace(unfinished.with_suffix(".jsonl"))


class FolderWriter:
    """One file of one task."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w", encoding="utf-8")

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Add a line for each row."""
        self._file.writelines(json.dumps(row, default=str) + "\n" for row in rows.to_pylist())

    def finish(self) -> bytes:
        """The file's name."""
        self._file.close()
        return self._path.name.encode()
