"""Columns of made-up values: a function of the seed, the column and the rows' numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["DRAWN", "INTEGERS", "MadeColumn", "make_column"]

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
