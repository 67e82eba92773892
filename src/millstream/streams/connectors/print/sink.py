"""Sinks that store nothing: `print` sends rows to the driver, `blackhole` counts them."""

from __future__ import annotations

import datetime
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.streams.connectors.table import SinkRequest
from millstream.streams.plan.types import Schema, TypeKind
from millstream.streams.spark.sinks.json_rows import python_values
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written
from millstream.streams.spark.sinks.spooled_rows import RowsWriter, files_of, read_rows

__all__ = ["BlackholeSink", "PrintSink", "blackhole_sink", "print_sink"]

OnRows = Callable[[tuple[str, ...], list[tuple[Any, ...]], list[int] | None], None]


class BlackholeSink:
    """Takes rows and forgets them."""

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema

    def begin(self, attempt: Attempt) -> bool:
        """Nothing is kept that a repeated micro-batch could meet."""
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer that does nothing."""
        return _Nothing()

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Nothing to do."""


class _Nothing:
    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows."""

    def finish(self) -> bytes:
        """No message."""
        return b""


class PrintSink:
    """Brings rows to the driver and calls `on_rows(columns, rows, kinds)` there, at each batch's commit.

    Rows travel as files of a directory of this process, which takes them record batch by record batch: a micro-batch
    of any size needs no more memory than one of those. A replayed batch is shown again. Times without a zone are
    naive datetimes, instants are in UTC.
    """

    def __init__(self, name: str, schema: Schema, on_rows: OnRows | None) -> None:
        self.name = name
        self.schema = schema
        self._on_rows = on_rows
        self._directory = tempfile.mkdtemp(prefix="millstream-print-")
        weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)

    def __getstate__(self) -> dict[str, Any]:
        # The callback stays in the driver.
        return {"name": self.name, "schema": self.schema, "_on_rows": None, "_directory": self._directory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def begin(self, attempt: Attempt) -> bool:
        """Nothing is kept that a repeated micro-batch could meet."""
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer that packs rows as an Arrow stream."""
        return RowsWriter(Path(self._directory), task)

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Show the rows."""
        for path in files_of(written):
            if self._on_rows is not None:
                self._show(path, self._on_rows)
            path.unlink(missing_ok=True)

    def _show(self, path: Path, on_rows: OnRows) -> None:
        for batch in read_rows(path):
            kinds: list[int] | None = None
            if batch.num_columns > len(self.schema.fields):
                kinds = batch.column(batch.num_columns - 1).to_pylist()
                batch = batch.select(batch.schema.names[:-1])
            on_rows(self.schema.names, _python_rows(batch, self.schema), kinds)


def _python_rows(batch: pa.RecordBatch, schema: Schema) -> list[tuple[Any, ...]]:
    columns = []
    for column, field in zip(batch.columns, schema.fields, strict=True):
        if field.type.kind is TypeKind.TIMESTAMP:
            column = column.cast(pa.timestamp("us"))
        values = python_values(column)
        if field.type.kind is TypeKind.TIMESTAMP_LTZ:
            values = [None if value is None else value.astimezone(datetime.UTC) for value in values]
        elif field.type.kind is TypeKind.TIME:
            values = [None if value is None else _clock(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def _clock(milliseconds: int) -> datetime.time:
    return (datetime.datetime.min + datetime.timedelta(milliseconds=milliseconds)).time()


def print_sink(request: SinkRequest) -> PrintSink:
    """What shows the rows of an INSERT, under the label that its table has."""
    table = request.insert.table
    label = table.options.get("print-identifier") or table.name
    show = None if request.show is None else partial(request.show, label)
    return PrintSink(table.name, request.insert.input.schema, show)


def blackhole_sink(request: SinkRequest) -> BlackholeSink:
    """What throws the rows of an INSERT away."""
    return BlackholeSink(request.insert.table.name, request.insert.input.schema)
