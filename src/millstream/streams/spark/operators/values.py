"""Arrow record batches as rows of plain Python values, and back; see `millstream.streams.operators.operator`."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from millstream.streams.operators.operator import Row

__all__ = ["batch_of", "rows_of"]


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
