"""The plan's types as Arrow's: those that Spark expects of record batches, told without Spark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from millstream.streams.plan.types import DEFAULT_DECIMAL, DataType, TypeKind

__all__ = ["arrow_type"]

_INSTANT: Final = pa.timestamp("us", "UTC")
_PLAIN: Final[dict[TypeKind, pa.DataType]] = {
    TypeKind.NULL: pa.null(),
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.TINYINT: pa.int8(),
    TypeKind.SMALLINT: pa.int16(),
    TypeKind.INT: pa.int32(),
    TypeKind.BIGINT: pa.int64(),
    TypeKind.FLOAT: pa.float32(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.STRING: pa.string(),
    TypeKind.BYTES: pa.binary(),
    TypeKind.VARIANT: pa.string(),
    TypeKind.DATE: pa.date32(),
    TypeKind.TIME: pa.int32(),
    TypeKind.TIMESTAMP: _INSTANT,
    TypeKind.TIMESTAMP_LTZ: _INSTANT,
    TypeKind.INTERVAL_DAY: pa.duration("us"),
    TypeKind.INTERVAL_YEAR: pa.int32(),
}


def arrow_type(data_type: DataType) -> pa.DataType:
    """The type of one column of Spark's record batches; see `columns.types` for what is what."""
    match data_type.kind:
        case TypeKind.DECIMAL:
            precision, scale = DEFAULT_DECIMAL
            return pa.decimal128(data_type.precision or precision, data_type.scale or scale)
        case TypeKind.ARRAY:
            return pa.list_(pa.field("element", arrow_type(data_type.elements[0])))
        case TypeKind.MAP:
            key, value = map(arrow_type, data_type.elements)
            return pa.map_(key, value)
        case TypeKind.ROW:
            return pa.struct([pa.field(part.name, arrow_type(part.type)) for part in data_type.fields])
        case kind:
            return _PLAIN[kind]
