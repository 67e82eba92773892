"""Spool files of tasks, named in their messages to the driver: rows and other sink data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.streams.spark.columns.rows import KIND_COLUMN
from millstream.streams.spark.sinks.sink import SinkTask, Written
from millstream.streams.state.spool import Spool, SpoolFile

__all__ = ["RowsWriter", "attempt_name", "files_of", "finish_file", "read_rows"]


def attempt_name(task: SinkTask) -> str:
    """The name of a spool file of this attempt of a task: two attempts may run at one time."""
    return f"{task.partition:05d}-{os.getpid()}-{os.urandom(4).hex()}"


def finish_file(file: SpoolFile[Any]) -> bytes:
    """Complete the file of a task; the task's message to the driver, by which `files_of` finds it."""
    path = file.finish()
    return b"" if path is None else str(path).encode()


def files_of(written: Sequence[Written]) -> list[Path]:
    """The files of the attempts that count, as their messages name them; none of a task without records."""
    return [Path(part.message.decode()) for part in written if part.message]


class RowsWriter:
    """Leaves the rows of one attempt of a task in a file of `directory`, their kinds behind them. No rows, no file."""

    def __init__(self, directory: Path, task: SinkTask) -> None:
        self._file = _spool(directory).file(attempt_name(task))

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Add rows."""
        if kinds is not None:
            rows = rows.append_column(KIND_COLUMN, kinds)
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_batch(rows)
        self._file.add(out.getvalue().to_pybytes())

    def finish(self) -> bytes:
        """Complete the file; the message that names it."""
        return finish_file(self._file)


def read_rows(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a task in their order, one record batch in memory at a time; kinds are the last column, if any."""
    for text in _spool(path.parent).read(path):
        with pa.ipc.open_stream(text) as stream:
            yield from stream


def _spool(directory: Path) -> Spool[bytes]:
    """Each record is an Arrow stream of one record batch."""
    return Spool(directory, ".rows", bytes)
