"""Generates rows column by column; a row is the same however often it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.streams.connectors.made_rows import MadeRows, batch_of
from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.protocols import Offsets, SourcePartition
from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.types import DataType, Schema, TypeKind
from millstream.streams.spark.columns.types import arrow_schema, spark_schema

__all__ = ["DRAWN", "INTEGERS", "QUEUE", "DatagenSource", "MadeColumn", "make_column", "row_count"]


_BLOCK: Final = 1_000
"""Rows that are drawn together; a reading that begins within a block draws all of it."""

_MILLISECONDS_PER_DAY: Final = 86_400_000

INTEGERS: Final = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
_FRACTIONS: Final = (TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL)
_TIMES: Final = (TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ)

DRAWN: Final = (
    *INTEGERS,
    *_FRACTIONS,
    *_TIMES,
    TypeKind.BOOLEAN,
    TypeKind.STRING,
    TypeKind.BYTES,
    TypeKind.DATE,
    TypeKind.TIME,
)
"""The types whose values can be made."""


@dataclass(frozen=True, slots=True)
class MadeColumn:
    """How the values of a column are made: a sequence from `first` on, or at random from `least` to `greatest`.

    `length` is that of texts (with `varies` at most), `max_past_ms` how far a time lies before its row's.
    """

    name: str
    type: DataType
    is_sequence: bool = False
    first: int = 0
    least: float = 0
    greatest: float = 0
    length: int = 100
    varies: bool = False
    max_past_ms: int = 0
    null_rate: float = 0


def make_column(
    column: MadeColumn, number: int, rows: range, arrow_type: pa.DataType, *, base_time_ms: int, rows_per_s: int
) -> pa.Array:
    """The values of `rows`; `number` is the column's place in the table, `base_time_ms` the time of the row 0."""
    times = _Times(base_time_ms, rows_per_s)
    blocks = [
        _block(times, column, number, block, arrow_type)
        for block in range(rows.start // _BLOCK, -(-rows.stop // _BLOCK))
    ]
    whole = pa.concat_arrays(blocks)
    return whole.slice(rows.start - rows.start // _BLOCK * _BLOCK, len(rows))


@dataclass(frozen=True, slots=True)
class _Times:
    """The time of the row 0, and how many rows come in a second."""

    base_time_ms: int
    rows_per_s: int


def _block(times: _Times, column: MadeColumn, number: int, block: int, arrow_type: pa.DataType) -> pa.Array:
    draw = np.random.Generator(np.random.PCG64([times.base_time_ms, number, block]))
    rows = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
    values = _values(times, column, rows, draw)
    nulls = draw.random(_BLOCK) < column.null_rate
    if column.type.kind is TypeKind.DECIMAL:
        return pa.array(np.round(values, column.type.scale or 0), mask=nulls).cast(arrow_type)
    if column.type.kind in _TIMES:
        return pa.array(values * 1000, mask=nulls).cast(arrow_type)
    if column.type.kind is TypeKind.DATE:
        return pa.array((values // _MILLISECONDS_PER_DAY).astype(np.int32), mask=nulls).cast(arrow_type)
    if column.type.kind is TypeKind.TIME:
        return pa.array((values % _MILLISECONDS_PER_DAY).astype(np.int32), arrow_type, mask=nulls)
    return pa.array(values, arrow_type, mask=nulls)


def _values(times: _Times, column: MadeColumn, rows: Any, draw: np.random.Generator) -> Any:
    kind = column.type.kind
    if column.is_sequence:
        numbers = column.first + rows
        return [str(number) for number in numbers] if kind is TypeKind.STRING else numbers
    if kind in INTEGERS:
        return draw.integers(int(column.least), int(column.greatest), len(rows), endpoint=True)
    if kind in _FRACTIONS:
        return draw.uniform(column.least, column.greatest, len(rows))
    if kind is TypeKind.BOOLEAN:
        return draw.random(len(rows)) < 0.5
    if kind in (TypeKind.STRING, TypeKind.BYTES):
        return _texts(column, len(rows), draw, as_bytes=kind is TypeKind.BYTES)
    moments = times.base_time_ms + rows * 1000 // times.rows_per_s
    return moments - (draw.random(len(rows)) * column.max_past_ms).astype(np.int64)


def _texts(column: MadeColumn, count: int, draw: np.random.Generator, *, as_bytes: bool) -> list[Any]:
    """Hexadecimal digits, as Flink makes them; bytes at random."""
    lengths = draw.integers(1, max(1, column.length), count, endpoint=True) if column.varies else None
    # Two digits a byte, and one byte more for an odd length.
    size = column.length if as_bytes else column.length // 2 + 1
    drawn = draw.bytes(size * count)
    parts: list[Any] = [drawn[place * size : (place + 1) * size] for place in range(count)]
    if not as_bytes:
        parts = [part.hex() for part in parts]
    return [part[: column.length if lengths is None else lengths[place]] for place, part in enumerate(parts)]


QUEUE: Final = "datagen/0"
"""The one queue of such a table; its offsets are the rows' numbers."""

_COUNT_OPTION: Final = "number-of-rows"

_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 63}
_GREATEST_FRACTION = 1e9


class DatagenSource:
    """Rows that are made up. Raises JobError JOB_FAILED for a column whose values cannot be made.

    The time of the first row, when the job first started, is the seed: another job has other rows.
    """

    def __init__(self, table: ConnectedTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = table.read
        self._rate = table.number("rows-per-second")
        self._columns = [_column_maker(column, table) for column in table.stored]
        self._schema: pa.Schema = arrow_schema(spark_schema(Schema(table.schema.fields)))
        count = row_count(table.options, [column.name for column in table.stored])
        self._rows = MadeRows(table.name, QUEUE, count, _COUNT_OPTION, self._turns_in, clock)

    def start_ms(self) -> int:
        """Now."""
        return int(time.time() * 1000)

    def first(self) -> Offsets:
        """Before the first row."""
        return self._rows.first()

    def latest(self) -> Offsets:
        """Behind the last row. Raises JobError JOB_FAILED where there is none."""
        return self._rows.latest()

    def end_of(self, start: Offsets, max_rows: int, target: Offsets | None) -> Offsets:
        """Where a micro-batch ends."""
        return self._rows.end_of(start, max_rows, target)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        """The tasks of a micro-batch."""
        return self._rows.partitions(start, end, self._read.parallelism)

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._rows.batches(partition, self._batch)

    def _turns_in(self, elapsed_s: float) -> int:
        return int(elapsed_s * self._rate)

    def _batch(self, start: int, end: int) -> pa.RecordBatch:
        places = {column.name: place for place, column in enumerate(self._columns)}
        arrays = [
            make_column(
                self._columns[places[field.name]],
                places[field.name],
                range(start, end),
                field.type,
                base_time_ms=self._read.start_ms,
                rows_per_s=self._rate,
            )
            for field in self._schema
        ]
        return batch_of(arrays, self._schema, end - start)


def row_count(options: Mapping[str, str], columns: Sequence[str]) -> int:
    """How many rows there are: as many as are asked for, or as the shortest sequence has; 0 without end."""
    counts = [int(options[_COUNT_OPTION])] if _COUNT_OPTION in options else []
    for column in columns:
        if f"fields.{column}.end" in options:
            first, last = (int(float(options.get(f"fields.{column}.{of}", "0"))) for of in ("start", "end"))
            counts.append(last - first + 1)
    return max(0, min(counts, default=0))


def _column_maker(column: ConnectedColumn, table: ConnectedTable) -> MadeColumn:
    kind = column.type.kind
    if kind not in DRAWN:
        words = f"The column {column.name} of {table.name} is of type {column.type}; datagen makes no such values."
        raise JobError("JOB_FAILED", words, remedy="Use plain types, and ROW(...) or ARRAY[...] in the query.")

    def option(name: str, default: str) -> str:
        return table.options.get(f"fields.{column.name}.{name}", default)

    limit = 1 << (_BITS[kind] - 1) if kind in INTEGERS else _GREATEST_FRACTION
    least, greatest = -limit, limit - 1 if kind in INTEGERS else limit
    return MadeColumn(
        column.name,
        column.type,
        is_sequence=option("kind", "random").lower() == "sequence",
        first=int(float(option("start", "0"))),
        least=float(option("min", str(least))),
        greatest=float(option("max", str(greatest))),
        length=int(option("length", "100")),
        varies=option("var-len", "false").lower() == "true",
        max_past_ms=milliseconds(option("max-past", "0 s")),
        null_rate=float(option("null-rate", "0")),
    )
