"""Rows that a task leaves in a file for the driver."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millstream.streams.spark.hidden import KIND_COLUMN

__all__ = ["LeftRows"]


class LeftRows:
    """Leaves the rows of a task in an Arrow stream, their kinds behind them. No rows, no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: pa.RecordBatchStreamWriter | None = None

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Add rows."""
        if kinds is not None:
            rows = rows.append_column(KIND_COLUMN, kinds)
        if self._stream is None:
            self._stream = pa.ipc.new_stream(str(self._path), rows.schema)
        self._stream.write_batch(rows)

    def finish(self) -> bytes:
        """Complete the file; its path."""
        if self._stream is not None:
            self._stream.close()
        return str(self._path).encode()
