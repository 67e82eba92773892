"""Sinks that keep nothing: `print` hands rows to the driver, `blackhole` counts them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millstream.streams.plan.types import Schema, TypeKind
from millstream.streams.spark.sinks.sink import SinkTask, SinkWriter, Written

__all__ = ["BlackholeSink", "PrintSink"]

OnRows = Callable[[tuple[str, ...], list[tuple[Any, ...]]], None]


class BlackholeSink:
    """Takes rows and forgets them."""

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer that does nothing."""
        return _Nothing()

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Nothing to do."""


class _Nothing:
    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows."""

    def finish(self) -> bytes:
        """No message."""
        return b""


class PrintSink:
    """Brings rows to the driver and calls `on_rows(columns, rows)` there, at each batch's commit.

    A replayed batch is shown again. Times without a zone are naive datetimes, instants are in UTC.
    """

    def __init__(self, name: str, schema: Schema, on_rows: OnRows | None) -> None:
        self.name = name
        self.schema = schema
        self._on_rows = on_rows

    def __getstate__(self) -> dict[str, Any]:
        # The callback stays in the driver.
        return {"name": self.name, "schema": self.schema, "_on_rows": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer that packs rows as an Arrow stream."""
        return _Packer()

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Show the rows."""
        if self._on_rows is None:
            return
        for part in written:
            with pa.ipc.open_stream(part.message) as stream:
                rows = _python_rows(stream.read_all(), self.schema)
            if rows:
                self._on_rows(self.schema.names, rows)


class _Packer:
    def __init__(self) -> None:
        self._buffer = pa.BufferOutputStream()
        self._stream: pa.RecordBatchStreamWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows to the stream."""
        if self._stream is None:
            self._stream = pa.ipc.new_stream(self._buffer, rows.schema)
        self._stream.write_batch(rows)

    def finish(self) -> bytes:
        """The stream."""
        if self._stream is not None:
            self._stream.close()
        return bytes(self._buffer.getvalue())


def _python_rows(table: pa.Table, schema: Schema) -> list[tuple[Any, ...]]:
    columns = []
    for column, field in zip(table.columns, schema.fields, strict=True):
        if field.type.kind is TypeKind.TIMESTAMP:
            column = column.cast(pa.timestamp("us"))
        values = column.to_pylist()
        if field.type.kind is TypeKind.TIMESTAMP_LTZ:
            values = [None if value is None else value.astimezone(datetime.UTC) for value in values]
        elif field.type.kind is TypeKind.TIME:
            values = [None if value is None else _clock(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def _clock(milliseconds: int) -> datetime.time:
    return (datetime.datetime.min + datetime.timedelta(milliseconds=milliseconds)).time()
