"""External merge sort of rows by two numbers, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.store.files import FileLayer
from millstream.streams.dimension.key_values import Unsigned

__all__ = ["SortedRows", "SortedRuns"]

MAX_RUNS: Final = 48
"""Sorted runs on the disk that become one longer run, of which again as many become one."""

_SHARE_OF_BUFFER: Final = 3
"""Part of the memory that waiting rows may take: sorting makes a copy of them."""

_LEAST_ROWS: Final = 64
"""Rows that a piece of a run has at least."""

_MOST_ROWS: Final = 16_384


class SortedRows(NamedTuple):
    """Rows with the numbers that they are sorted by."""

    high: Unsigned
    low: Unsigned
    rows: pa.RecordBatch


@dataclass(slots=True)
class _Run:
    """Where the pieces of one run stand in the file: position and length in bytes."""

    pieces: list[tuple[int, int]] = field(default_factory=list)


class SortedRuns:
    """Takes rows with numbers and gives them back sorted; equal numbers keep no order.

    About `memory_bytes` are taken, however many rows there are. The file at `path` is there from the first run to
    `close`.
    """

    def __init__(self, files: FileLayer, path: Path, schema: pa.Schema, memory_bytes: int) -> None:
        self._files = files
        self._path = path
        numbers = [pa.field("\0high", pa.uint64()), pa.field("\0low", pa.uint64())]
        self._schema = pa.schema([*numbers, *schema])
        self._buffer_bytes = memory_bytes // _SHARE_OF_BUFFER
        self._piece_bytes = memory_bytes // _SHARE_OF_BUFFER // MAX_RUNS
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._runs: list[list[_Run]] = []
        self._descriptor: int | None = None
        self._end = 0
        self.rows = 0

    def add(self, high: Unsigned, low: Unsigned, rows: pa.RecordBatch) -> None:
        """More rows; a batch should be much smaller than the memory."""
        batch = pa.RecordBatch.from_arrays([pa.array(high), pa.array(low), *rows.columns], schema=self._schema)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._waiting_bytes > self._buffer_bytes:
            self._spill()

    def sort(self) -> Iterator[SortedRows]:
        """All rows, in batches of any size. To be asked once, when all rows were added."""
        if not self._runs:
            yield from self._sort_buffered()
            return
        if self._waiting:
            self._spill()
        yield from self._merge_runs([run for level in self._runs for run in level])

    def close(self) -> None:
        """Close the file and remove it."""
        self._waiting.clear()
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None
            self._files.discard(self._path)

    def _sort_buffered(self) -> Iterator[SortedRows]:
        if not self._waiting:
            return
        batch = pa.concat_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        order = _order(*_numbers(batch))
        for start in range(0, batch.num_rows, _MOST_ROWS):
            yield _split_key(batch.take(pa.array(order[start : start + _MOST_ROWS])))

    def _spill(self) -> None:
        run = self._write_run(self._sort_buffered())
        for level in self._runs:
            level.append(run)
            if len(level) < MAX_RUNS:
                return
            run = self._write_run(self._merge_runs(level))
            level.clear()
        self._runs.append([run])

    def _write_run(self, batches: Iterator[SortedRows]) -> _Run:
        if self._descriptor is None:
            self._descriptor = self._files.open(self._path, create=True)
            self._files.truncate(self._descriptor, 0)
        run = _Run()
        for high, low, rows in batches:
            batch = pa.RecordBatch.from_arrays([pa.array(high), pa.array(low), *rows.columns], schema=self._schema)
            row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
            step = min(_MOST_ROWS, max(_LEAST_ROWS, self._piece_bytes // row_bytes))
            for start in range(0, batch.num_rows, step):
                content = batch.slice(start, step).serialize()
                self._files.pwrite(self._descriptor, memoryview(content), self._end)
                run.pieces.append((self._end, content.size))
                self._end += content.size
        return run

    def _read_piece(self, piece: tuple[int, int]) -> pa.RecordBatch:
        assert self._descriptor is not None
        position, length = piece
        content = self._files.pread(self._descriptor, length, position)
        return pa.ipc.read_record_batch(pa.py_buffer(content), self._schema)

    def _merge_runs(self, runs: Sequence[_Run]) -> Iterator[SortedRows]:
        cursors = [_Cursor(self._read_piece(run.pieces[0]), run) for run in runs]
        while cursors:
            bound = min((cursor.last for cursor in cursors if cursor.more), default=None)
            parts = [part for cursor in cursors if (part := cursor.up_to(bound)).num_rows]
            for cursor in cursors:
                if cursor.is_empty and cursor.more:
                    cursor.advance(self._read_piece(cursor.next_piece))
            cursors = [cursor for cursor in cursors if not cursor.is_empty]
            batch = pa.concat_batches(parts)
            yield _split_key(batch if len(parts) == 1 else batch.take(pa.array(_order(*_numbers(batch)))))


class _Cursor:
    """What is left of the piece of a run that is being merged."""

    def __init__(self, batch: pa.RecordBatch, run: _Run) -> None:
        self._run = run
        self._number = 0
        self._take(batch)

    def _take(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._high, self._low = _numbers(batch)
        self._at = 0

    @property
    def more(self) -> bool:
        """Whether the run has pieces behind this one."""
        return self._number + 1 < len(self._run.pieces)

    @property
    def next_piece(self) -> tuple[int, int]:
        return self._run.pieces[self._number + 1]

    def advance(self, batch: pa.RecordBatch) -> None:
        """Go to the next piece."""
        self._number += 1
        self._take(batch)

    @property
    def last(self) -> tuple[int, int]:
        """The numbers of the piece's last row."""
        return int(self._high[-1]), int(self._low[-1])

    @property
    def is_empty(self) -> bool:
        return self._at == int(self._batch.num_rows)

    def up_to(self, bound: tuple[int, int] | None) -> pa.RecordBatch:
        """The next rows that do not lie above the bound; all of the piece where there is none."""
        start = self._at
        if bound is None:
            self._at = self._batch.num_rows
        else:
            high, low = np.uint64(bound[0]), np.uint64(bound[1])
            first, last = (int(np.searchsorted(self._high, high, side)) for side in ("left", "right"))
            self._at = max(start, first + int(np.searchsorted(self._low[first:last], low, "right")))
        return self._batch.slice(start, self._at - start)


def _numbers(batch: pa.RecordBatch) -> tuple[Unsigned, Unsigned]:
    return batch.column(0).to_numpy(), batch.column(1).to_numpy()


def _split_key(batch: pa.RecordBatch) -> SortedRows:
    high, low = _numbers(batch)
    return SortedRows(high, low, batch.select(range(2, batch.num_columns)))


def _order(high: Unsigned, low: Unsigned) -> npt.NDArray[np.int64]:
    order = np.argsort(high, kind="stable")
    sorted_high, sorted_low = high[order], low[order]
    # Only where the first number is the same does the second one matter, which is rare in hashes.
    if bool(((sorted_high[1:] == sorted_high[:-1]) & (sorted_low[1:] < sorted_low[:-1])).any()):
        return np.lexsort((low, high))
    return order
