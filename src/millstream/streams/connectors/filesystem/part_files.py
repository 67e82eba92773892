"""Writes the files of one task in a micro-batch, in the format of the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.tables import DEFAULT_NAME, partition_name
from millstream.streams.plan.types import Field, Schema, TypeKind
from millstream.streams.spark.sinks.bodies import body_encoder
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.csv_bodies import csv_dialect

__all__ = [
    "FORMATS",
    "MAX_OPEN_FILES",
    "MAX_WAITING_BYTES",
    "FileLayout",
    "FileOutput",
    "PartFiles",
    "hidden_path_of",
    "text_column",
    "written_files",
]


class FileOutput(Protocol):
    """One file in one format; closing it leaves the file itself open."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows of the schema."""
        ...

    def close(self) -> None:
        """Write what was held back."""
        ...


class _JsonLines:
    def __init__(self, file: BinaryIO, schema: Schema, text: BodyFormat) -> None:
        self._file = file
        self._schema = schema
        self._iso = text.option("timestamp-format.standard").upper() == "ISO-8601"

    def write(self, rows: pa.RecordBatch) -> None:
        lines = encode_rows(rows, self._schema, iso_times=self._iso)
        self._file.write(b"".join(line + b"\n" for line in lines))

    def close(self) -> None:
        """Nothing is held back."""


class _Csv:
    """No header, quotes where they are needed, NULL is blank or a literal, nested values are JSON text: Flink's CSV."""

    def __init__(self, file: BinaryIO, schema: Schema, text: BodyFormat) -> None:
        self._file = file
        self._schema = schema
        # Arrow writes no literals.
        self._encode = body_encoder(text, schema) if text.option("null-literal") else None
        delimiter = csv_dialect(text)["delimiter"]
        self._options = pa.csv.WriteOptions(include_header=False, quoting_style="needed", delimiter=delimiter)

    def write(self, rows: pa.RecordBatch) -> None:
        if self._encode is not None:
            self._file.write(b"".join(line + b"\n" for line in self._encode(rows, ())))
            return
        columns = [
            text_column(column, Schema((field,)))
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


def text_column(column: pa.Array, schema: Schema) -> pa.Array:
    """The values of the one column of `schema` as CSV has them: a plain column, or texts."""
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

    def __init__(self, file: BinaryIO, schema: Schema, text: BodyFormat) -> None:
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
"""The file formats by name: each is made of a file, the schema of its rows, and the format with its options."""


MAX_OPEN_FILES: Final = 64
"""Files that a task keeps open; where it writes to more partitions, those that it wrote to long ago are closed."""

MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Rows of a partitioned table that wait in a task, so that those of one partition are written together."""

_DEFAULT_ROLL_BYTES = 128 * 1024 * 1024
_BEFORE, _DELETE = RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How the rows of `schema` lie in the files of `directory`.

    The columns `partition` are in the names of directories, not in the files. A file that has reached `roll_bytes`
    gets a successor. `options` are those of the table, among them the format's.
    """

    directory: Path
    schema: Schema
    file_format: str
    partition: tuple[str, ...] = ()
    default_name: str = DEFAULT_NAME
    roll_bytes: int = _DEFAULT_ROLL_BYTES
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def inside(self) -> tuple[Field, ...]:
        """The columns that are in the files."""
        return tuple(field for field in self.schema.fields if field.name not in self.partition)


@dataclass(slots=True)
class _OpenFile:
    file: BinaryIO
    output: FileOutput


@dataclass(slots=True)
class PartFiles:
    """Writes rows to files called `name`, with a number behind it for all but the first of a directory."""

    layout: FileLayout
    name: str
    _open: dict[str, _OpenFile] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _paths: list[str] = field(default_factory=list)
    _waiting: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    _waiting_bytes: int = 0

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows; what EMIT takes back of a window stays, since files only grow."""
        if kinds is not None:
            rows = rows.filter(pc.and_(pc.not_equal(kinds, _BEFORE), pc.not_equal(kinds, _DELETE)))
        if rows.num_rows == 0:
            return
        if not self.layout.partition:
            self._append("", rows)
            return
        for directory, part in _divide_by_partition(rows, self.layout):
            self._waiting.setdefault(directory, []).append(part)
            self._waiting_bytes += part.nbytes
        if self._waiting_bytes >= MAX_WAITING_BYTES:
            self._flush()

    def finish(self) -> bytes:
        """Complete all files; their paths in the directory, for `written_files`."""
        self._flush()
        for directory in list(self._open):
            self._close(directory)
        return msgspec.json.encode(self._paths)

    def _flush(self) -> None:
        for directory, parts in sorted(self._waiting.items()):
            for part in parts:
                self._append(directory, part)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _append(self, directory: str, rows: pa.RecordBatch) -> None:
        one = self._open.pop(directory, None)
        if one is None:
            while len(self._open) >= MAX_OPEN_FILES:
                self._close(next(iter(self._open)))
            one = self._open_file(directory)
        # At the end of the order, so that the first is the one that was written to longest ago.
        self._open[directory] = one
        one.output.write(rows)
        if one.file.tell() >= self.layout.roll_bytes:
            self._close(directory)

    def _open_file(self, directory: str) -> _OpenFile:
        number = self._counts.get(directory, 0)
        self._counts[directory] = number + 1
        name = f"{self.name}-{number}" if number else self.name
        path = Path(directory) / f"{name}.{self.layout.file_format}"
        place = hidden_path_of(self.layout.directory / path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            file = place.open("wb")
        except OSError as error:
            raise JobError("SINK_FAILED", f"Cannot write to {str(place.parent)[:_SHOWN]}: {error.strerror}.") from None
        self._paths.append(str(path))
        text = BodyFormat(self.layout.file_format, options=dict(self.layout.options))
        return _OpenFile(file, FORMATS[text.name](file, Schema(self.layout.inside), text))

    def _close(self, directory: str) -> None:
        one = self._open.pop(directory)
        one.output.close()
        one.file.close()


_SHOWN = 1_000


def hidden_path_of(path: Path) -> Path:
    """Where a file is until it is whole."""
    return path.with_name(f".{path.name}")


def written_files(message: bytes) -> list[str]:
    """The paths that a task has told, as they are to be after the commit."""
    return msgspec.json.decode(message, type=list[str])


def _divide_by_partition(rows: pa.RecordBatch, layout: FileLayout) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each partition without the columns that its directory names, in their order."""
    numbers, directories = _partitions(rows, layout)
    inside = rows.select([column.name for column in layout.inside])
    if len(directories) == 1:
        yield directories[0], inside
        return
    together = inside.take(pa.array(np.argsort(numbers, kind="stable")))
    start = 0
    for directory, count in zip(directories, np.bincount(numbers).tolist(), strict=True):
        yield directory, together.slice(start, count)
        start += count


def _partitions(rows: pa.RecordBatch, layout: FileLayout) -> tuple[np.ndarray, Sequence[str]]:
    """The number of each row's partition, and the directories by these numbers."""
    numbers, directories = np.zeros(rows.num_rows, np.int64), [""]
    types = {column.name: column for column in layout.schema.fields}
    for name in layout.partition:
        texts = text_column(rows.column(name), Schema((types[name],))).cast(pa.string()).fill_null("")
        encoded = texts.dictionary_encode()
        names = [partition_name(name, text, layout.default_name) for text in encoded.dictionary.to_pylist()]
        pairs = numbers * len(names) + encoded.indices.to_numpy()
        found, numbers = np.unique(pairs, return_inverse=True)
        parts = [divmod(int(pair), len(names)) for pair in found]
        directories = [f"{directories[outer]}/{names[inner]}".lstrip("/") for outer, inner in parts]
    return numbers, directories
