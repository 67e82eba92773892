"""The filesystem sink: one file per task and batch, named by job, batch and partition, so that a replay overwrites it.

Tasks write hidden files (a leading dot); the commit renames them. A reader that ignores hidden files sees only whole
batches, file by file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import Schema, TypeKind
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written

__all__ = ["FORMATS", "FileSink"]

_BEFORE, _DELETE = RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value


class FileSink:
    """Writes rows to files of one directory in one of `FORMATS`.

    `number` is the sink's place in its job: several INSERTs may go to one directory, each with files of its own.
    """

    def __init__(self, name: str, schema: Schema, directory: Path, file_format: str, *, number: int = 0) -> None:
        if file_format not in FORMATS:
            words = f"The table {name} has the format {file_format!r}; known are {list(FORMATS)}."
            raise JobError("SINK_FAILED", words)
        self.name = name
        self.schema = schema
        self._directory = directory
        self._format = file_format
        self._number = number

    def begin(self, attempt: Attempt) -> bool:
        """A repeated micro-batch writes the same files again."""
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer of one hidden file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return _FileWriter(self._directory / f".{self._file_name(task)}", self._format, self.schema)

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Rename the batch's files; one that an earlier attempt of the batch left and this one did not write goes."""
        if not written and not self._directory.is_dir():
            return
        try:
            names = {part.message.decode().removeprefix(".") for part in written}
            for name in sorted(names):
                hidden = self._directory / f".{name}"
                if hidden.exists():
                    hidden.replace(self._directory / name)
            for task in [part.task for part in written][:1]:
                for stale in self._directory.glob(f"{self._prefix(task)}-*"):
                    if stale.name not in names:
                        stale.unlink()
        except OSError as error:
            raise JobError("SINK_FAILED", f"Cannot complete the files of {self.name}: {error}.") from None

    def _file_name(self, task: SinkTask) -> str:
        return f"{self._prefix(task)}-{task.partition:05d}.{self._format}"

    def _prefix(self, task: SinkTask) -> str:
        return f"part-{task.job_id}-{self._number:03d}-{task.batch_id:08d}"


class _Output(Protocol):
    def write(self, rows: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _FileWriter:
    def __init__(self, path: Path, file_format: str, schema: Schema) -> None:
        self._path = path
        self._file = path.open("wb")
        self._output: _Output = FORMATS[file_format](self._file, schema)

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Add rows to the file; what EMIT takes back of a window stays, since files only grow."""
        if kinds is not None:
            rows = rows.filter(pc.and_(pc.not_equal(kinds, _BEFORE), pc.not_equal(kinds, _DELETE)))
        self._output.write(rows)

    def finish(self) -> bytes:
        """Complete the file; its hidden name."""
        self._output.close()
        self._file.flush()
        self._file.close()
        return self._path.name.encode()


class _JsonLines:
    def __init__(self, file: BinaryIO, schema: Schema) -> None:
        self._file = file
        self._schema = schema

    def write(self, rows: pa.RecordBatch) -> None:
        self._file.write(b"".join(line + b"\n" for line in encode_rows(rows, self._schema)))

    def close(self) -> None:
        """Nothing is held back."""


class _Csv:
    """No header, quotes where they are needed, NULL is blank, nested values are JSON text: Flink's CSV."""

    def __init__(self, file: BinaryIO, schema: Schema) -> None:
        self._file = file
        self._schema = schema
        self._options = pa.csv.WriteOptions(include_header=False, quoting_style="needed")

    def write(self, rows: pa.RecordBatch) -> None:
        columns = [
            _csv_column(column, Schema((field,)))
            for column, field in zip(rows.columns, self._schema.fields, strict=True)
        ]
        pa.csv.write_csv(pa.RecordBatch.from_arrays(columns, names=list(self._schema.names)), self._file, self._options)

    def close(self) -> None:
        """Nothing is held back."""


_PLAIN_IN_CSV = frozenset(
    kind
    for kind in TypeKind
    if kind.value in "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL STRING DATE".split()
)


def _csv_column(column: pa.Array, schema: Schema) -> pa.Array:
    field = schema.fields[0]
    if field.type.kind in _PLAIN_IN_CSV:
        return column
    values: list[str | None] = []
    for value in encode_rows(pa.RecordBatch.from_arrays([column], names=[field.name]), schema):
        text = value[value.index(b":") + 1 : -1].decode()
        values.append(None if text == "null" else text.strip('"'))
    return pa.array(values, pa.string())


class _Parquet:
    """Times without a zone are stored so, instants in UTC; the file is complete only when it is closed."""

    def __init__(self, file: BinaryIO, schema: Schema) -> None:
        self._file = file
        self._zoneless = [field.type.kind is TypeKind.TIMESTAMP for field in schema.fields]
        self._writer: Any = None

    def write(self, rows: pa.RecordBatch) -> None:
        columns = [
            column.cast(pa.timestamp("us")) if zoneless else column
            for column, zoneless in zip(rows.columns, self._zoneless, strict=True)
        ]
        stored = pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._file, stored.schema)
        self._writer.write_batch(stored)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


FORMATS: dict[str, Any] = {"json": _JsonLines, "csv": _Csv, "parquet": _Parquet}
"""The file formats by name."""
