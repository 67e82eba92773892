"""Arrow record batches as rows of plain Python values and back, and as an operator's input."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.streams.operators.columns import LARGEST, ColumnRows, Flags, Keys, Longs, Numbers, SelectedRows
from millstream.streams.operators.operator import Row

__all__ = ["ArrowRows", "batch_of", "columns_of", "rows_of"]


class ArrowRows(ColumnRows):
    """The first `width` columns of record batches of one schema."""

    def __init__(self, batches: Sequence[pa.RecordBatch], width: int) -> None:
        self._width = width
        self._batch: pa.RecordBatch = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        self._rows: list[Row] | None = None

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def to_rows(self) -> list[Row]:
        if self._rows is None:
            self._rows = rows_of(self._batch, self._width)
        return self._rows

    def at(self, places: Longs) -> list[Row]:
        if not self._width:
            return [()] * len(places)
        return rows_of(self._batch.select(range(self._width)).take(pa.array(places)), self._width)

    def column(self, place: int, more: Sequence[Row], places: Longs) -> pa.Array:
        """A column's values at `places`, behind which those of `more` rows stand."""
        column = self._batch.column(place)
        if more:
            values = pa.array([row[place] for row in more], plain_type(column.type))
            column = pa.concat_arrays([column, values.cast(column.type)])
        return column.take(pa.array(places))

    def validity_of(self, place: int) -> Flags | None:
        column = self._batch.column(place)
        return None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)

    def numbers(self, place: int) -> Numbers | None:
        column = self._batch.column(place)
        plain = plain_type(column.type)
        if not pa.types.is_signed_integer(plain):
            return None
        whole = column.cast(plain).cast(pa.int64())
        known = self.validity_of(place)
        return Numbers((whole if known is None else whole.fill_null(0)).to_numpy(), known)

    def keys(self, places: Sequence[int]) -> Keys | None:
        if not places:
            return Keys(np.zeros(len(self), np.int64), [()])
        columns = [self._batch.column(place) for place in places]
        if not all(_is_told_apart(column.type) for column in columns):
            return None
        parts = [column.cast(plain_type(column.type)).dictionary_encode("encode") for column in columns]
        numbers = [part.indices.to_numpy().astype(np.int64) for part in parts]
        values: list[list[Any]] = [part.dictionary.to_pylist() for part in parts]
        if len(parts) == 1:
            return Keys(numbers[0], values[0])
        return _of_several(numbers, values)


def columns_of(taken: SelectedRows, part: slice, fields: Sequence[pa.Field]) -> list[pa.Array]:
    """A part of rows that come by column, one array per field."""
    rows, places = taken.rows, taken.places[part]
    assert isinstance(rows, ArrowRows)
    arrays = [rows.column(place, taken.more, places) for place in range(taken.width)]
    arrays += [_array(numbers, part) for numbers in taken.columns]
    return [
        array if array.type == field.type else array.cast(plain_type(field.type)).cast(field.type)
        for array, field in zip(arrays, fields, strict=True)
    ]


def _array(numbers: Numbers, part: slice) -> pa.Array:
    known = numbers.known
    return pa.array(numbers.values[part], mask=None if known is None else ~known[part])


def _is_told_apart(arrow: pa.DataType) -> bool:
    """Whether values that Arrow takes for equal are those that rows do; NaN and texts of floats are not looked at."""
    plain = plain_type(arrow)
    return bool(
        pa.types.is_signed_integer(plain)
        or pa.types.is_boolean(plain)
        or pa.types.is_string(plain)
        or pa.types.is_binary(plain)
    )


def _of_several(numbers: Sequence[Longs], values: Sequence[list[Any]]) -> Keys | None:
    together, size = numbers[0], len(values[0])
    for more, others in zip(numbers[1:], values[1:], strict=True):
        size *= len(others)
        if size >= LARGEST:
            return None
        together = together * len(others) + more
    different, places = np.unique(together, return_inverse=True)
    keys: list[Hashable] = []
    for one in different.tolist():
        key = []
        for others in reversed(values):
            one, place = divmod(one, len(others))
            key.append(others[place])
        keys.append(tuple(reversed(key)))
    return Keys(places.astype(np.int64), keys)


def rows_of(batch: pa.RecordBatch, count: int) -> list[Row]:
    """The first `count` columns as rows."""
    columns = [_plain_column(batch.column(place)).to_pylist() for place in range(count)]
    return list(zip(*columns, strict=True)) if columns else [()] * batch.num_rows


def batch_of(rows: Sequence[Row], fields: Sequence[pa.Field]) -> list[pa.Array]:
    """One array per field of the rows' values. A decimal number with more digits than its type is NULL, as in Flink."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = []
    for values, field in zip(columns, fields, strict=True):
        plain = plain_type(field.type)
        array = _decimals(values, plain) if pa.types.is_decimal(plain) else pa.array(values, plain)
        arrays.append(array if plain == field.type else array.cast(field.type))
    return arrays


def _decimals(values: Sequence[Decimal | None], arrow: pa.Decimal128Type) -> pa.Array:
    try:
        return pa.array(values, arrow)
    except pa.ArrowInvalid:
        limit = Decimal(1).scaleb(arrow.precision - arrow.scale)
        return pa.array([None if value is None or value.copy_abs() >= limit else value for value in values], arrow)


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """The type whose Python values operators use: times are numbers."""
    if pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow):
        return pa.int64()
    if pa.types.is_date32(arrow):
        return pa.int32()
    if pa.types.is_list(arrow):
        return pa.list_(plain_type(arrow.value_type))
    if pa.types.is_map(arrow):
        return pa.map_(plain_type(arrow.key_type), plain_type(arrow.item_type))
    if pa.types.is_struct(arrow):
        fields = [arrow.field(place) for place in range(arrow.num_fields)]
        return pa.struct([pa.field(of.name, plain_type(of.type), of.nullable) for of in fields])
    return arrow


def _plain_column(column: pa.Array) -> pa.Array:
    plain = plain_type(column.type)
    return column if plain == column.type else column.cast(plain)
