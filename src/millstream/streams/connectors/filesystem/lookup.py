"""Lookup tables from files of a directory: JSON lines, CSV without a header, Parquet."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import msgspec
import pyarrow as pa
import pyarrow.parquet

from millstream.streams.dimension.versions import Loaded
from millstream.streams.errors import JobError
from millstream.streams.operators.operator import Row
from millstream.streams.plan.expressions import Call
from millstream.streams.plan.tables import DEFAULT_NAME, named_values
from millstream.streams.plan.types import Field, Schema, TypeKind
from millstream.streams.spark.lookups.kept_table import WholeTable, asked_again
from millstream.streams.spark.lookups.lookup_table import LookupSpec, LookupTable, arrow_batch, plain_batch
from millstream.streams.spark.operators.arrow_rows import rows_of
from millstream.streams.spark.source.formats.decoder import JsonDecoder

__all__ = ["DIMENSION_FILE_BYTES", "MAX_ROWS", "ROWS_AT_ONCE", "FileLookup", "file_batches", "file_stamp", "file_table"]

DIMENSION_FILE_BYTES: Final = 8 << 20
"""Bytes of files from which on they become a dimension table where the table's options say nothing else."""

MAX_ROWS: Final = 10_000_000
"""Rows of a looked-up table of files at most where each worker keeps all of them in memory."""

ROWS_AT_ONCE: Final = 20_000
"""Rows of a file that are read at once."""

_NESTED = (TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW)
_DEFAULT_TTL = "10 s"


class FileLookup:
    """The files of a table, which are other data when one of them has changed."""

    watches = True

    def __init__(self, spec: LookupSpec) -> None:
        self._spec = spec

    def table(self) -> LookupTable:
        """All rows in memory."""
        return asked_again(self._spec, file_table(self._spec))

    def loads_whole(self) -> bool:
        """Whether there is much in the files."""
        return file_size_bytes(self._spec) >= DIMENSION_FILE_BYTES

    def stamp(self) -> str:
        """A digest of which files there are, with their times and sizes."""
        return hashlib.sha256(msgspec.json.encode(file_stamp(self._spec))).hexdigest()

    def load(self, fill: Callable[[], Loaded], directory: Path) -> Loaded:
        """What `fill` gives. Raises JobError JOB_FAILED where there is nothing at all."""
        if not file_root(self._spec).exists():
            words = f"The table {self._spec.name} cannot be loaded: {self._spec.option('path')} is not there."
            raise JobError("JOB_FAILED", words, remedy="Correct 'path', or bring the files back.")
        return fill()

    def batches(self, spec: LookupSpec, ends: dict[str, int], filters: Sequence[Call]) -> Iterator[pa.RecordBatch]:
        """The rows of all files."""
        return file_batches(spec)


def file_table(spec: LookupSpec) -> WholeTable:
    """The rows of all files under the table's path, read again when one has changed."""
    ttl_s = spec.seconds("lookup.cache.ttl", _DEFAULT_TTL) or 0
    return WholeTable(spec, partial(_load, spec), partial(file_stamp, spec), ttl_s)


def file_root(spec: LookupSpec) -> Path:
    """The table's file or directory. Raises JobError JOB_FAILED for one that is not local."""
    parts = urlparse(spec.option("path"))
    if parts.scheme and parts.scheme != "file":
        raise JobError("JOB_FAILED", f"The table {spec.name} cannot be looked up: {spec.option('path')} is not local.")
    return Path(unquote(parts.path)) if parts.scheme else Path(spec.option("path"))


def _files(spec: LookupSpec) -> list[Path]:
    """The files, or the one; hidden ones are those that are still written."""
    root = file_root(spec)
    if root.is_file():
        return [root]
    found = (file for file in root.rglob("*") if file.is_file())
    return sorted(file for file in found if not _is_hidden(file.relative_to(root)))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def file_stamp(spec: LookupSpec) -> tuple[tuple[str, int, int], ...]:
    """What shows that a file is another one."""
    stamps = []
    for file in _files(spec):
        try:
            status = file.stat()
        except FileNotFoundError:
            continue
        stamps.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(stamps)


def file_size_bytes(spec: LookupSpec) -> int:
    """The bytes of all files."""
    return sum(size_bytes for _, _, size_bytes in file_stamp(spec))


def _load(spec: LookupSpec) -> list[Row]:
    """All rows. Raises JobError JOB_FAILED for a file that cannot be read, or too many rows."""
    rows: list[Row] = []
    for batch in file_batches(spec):
        rows += rows_of(batch, batch.num_columns) if batch.num_columns else [()] * batch.num_rows
        if len(rows) > MAX_ROWS:
            words = f"The table {spec.name} has more than {MAX_ROWS:,} rows, too many to be looked up."
            raise JobError("JOB_FAILED", words, remedy="Leave out 'lookup.store' = 'plain'.")
    return rows


def file_batches(spec: LookupSpec) -> Iterator[pa.RecordBatch]:
    """All rows, at most `ROWS_AT_ONCE` in memory. Raises JobError JOB_FAILED for a file that cannot be read."""
    read = _READERS[spec.option("format", "json").lower()]
    for file in _files(spec):
        try:
            yield from _with_partitions(spec, file, read)
        except FileNotFoundError:
            # It was replaced between the look at the directory and this one; the next look sees that.
            continue
        except (OSError, csv.Error, pa.ArrowException) as error:
            words = f"The table {spec.name} cannot be looked up: {file} cannot be read: {error}"
            raise JobError("JOB_FAILED", words) from None


_Read = Callable[[LookupSpec, Path, Sequence[Field]], Iterator[pa.RecordBatch]]


def _with_partitions(spec: LookupSpec, file: Path, read: _Read) -> Iterator[pa.RecordBatch]:
    """The rows of one file in the columns of the spec, with what its directories' names say."""
    inside = [field for field in spec.fields if field.name not in spec.partitions]
    outside = Schema(tuple(field for field in spec.fields if field.name in spec.partitions))
    if not outside.fields:
        yield from read(spec, file, inside)
        return
    named = named_values(
        file.relative_to(file_root(spec)).parts[:-1], spec.option("partition.default-name", DEFAULT_NAME)
    )
    values = plain_batch([[named.get(name) for name in outside.names]], outside)
    if not values.num_rows:
        return
    # Some column tells how many rows there are.
    counted = inside or [field for field in spec.stored if field.name not in spec.partitions][:1]
    for batch in read(spec, file, counted):
        first = pa.array([0] * batch.num_rows, pa.int32())
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= {name: values.column(name).take(first) for name in outside.names}
        yield arrow_batch([columns[name] for name in spec.schema.names], spec.schema)


def _json(spec: LookupSpec, file: Path, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
    decoder = JsonDecoder([(field.name, field.type) for field in fields])
    with file.open("rb") as stream:
        lines = (text for line in stream if (text := line.rstrip(b"\n")).strip())
        while chunk := list(islice(lines, ROWS_AT_ONCE)):
            yield arrow_batch(decoder.decode(chunk).columns, Schema(tuple(fields)))


def _csv(spec: LookupSpec, file: Path, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
    stored = [field for field in spec.stored if field.name not in spec.partitions]
    places = [stored.index(field) for field in fields]
    null = spec.option("csv.null-literal")
    delimiter = spec.option("csv.field-delimiter", ",").replace("\\t", "\t")[:1]
    with file.open(newline="", encoding="utf-8", errors="replace") as lines:
        rows = (line for line in csv.reader(lines, delimiter=delimiter) if len(line) == len(stored))
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            texts = ([_csv_value(line[place], stored[place], null) for place in places] for line in chunk)
            yield plain_batch(texts, Schema(tuple(fields)))


def _csv_value(text: str, field: Field, null: str) -> Any:
    if text == null or (not text and field.type.kind is not TypeKind.STRING):
        return None
    if field.type.kind in _NESTED:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _parquet(spec: LookupSpec, file: Path, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
    schema = Schema(tuple(fields))
    with pa.parquet.ParquetFile(file) as parquet:
        known = set(parquet.schema_arrow.names)
        read = [name for name in schema.names if name in known]
        for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=read):
            columns = [
                batch.column(name) if name in known else pa.nulls(batch.num_rows)
                for name in schema.names
            ]  # fmt: skip
            yield arrow_batch(columns, schema)


_READERS: dict[str, _Read] = {"json": _json, "csv": _csv, "parquet": _parquet}
