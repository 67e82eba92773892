"""Splits Arrow arrays into buffers and numbers, and rebuilds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.streams.dimension.index_key import Numbers
from millstream.streams.dimension.key_values import Flags

__all__ = [
    "elements_of",
    "from_integers",
    "integers_of",
    "is_bytes",
    "is_integral",
    "is_repeated",
    "is_storable",
    "parts_of",
    "validity",
]

_INT64_DIGITS = 18
"""Decimal digits that every 64-bit number has room for."""

_DTYPES: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def is_integral(data_type: pa.DataType) -> bool:
    """Whether the values are 64-bit numbers at most: integers, times, short decimals, booleans."""
    types = pa.types
    if types.is_decimal128(data_type):
        return bool(data_type.precision <= _INT64_DIGITS)
    return bool(
        types.is_boolean(data_type)
        or types.is_signed_integer(data_type)
        or types.is_date32(data_type)
        or types.is_time(data_type)
        or types.is_timestamp(data_type)
        or types.is_duration(data_type)
    )


def is_bytes(data_type: pa.DataType) -> bool:
    """Whether the values are texts or bytes."""
    types = pa.types
    plain = types.is_string(data_type) or types.is_binary(data_type)
    return bool(plain or types.is_large_string(data_type) or types.is_large_binary(data_type))


def is_repeated(data_type: pa.DataType) -> bool:
    """Whether the values are arrays or maps."""
    return bool(pa.types.is_list(data_type) or pa.types.is_map(data_type))


def is_storable(data_type: pa.DataType) -> bool:
    """Whether a table can hold values of the type."""
    types = pa.types
    if is_repeated(data_type) or types.is_struct(data_type):
        return all(map(is_storable, parts_of(data_type)))
    raw = types.is_float32(data_type) or types.is_float64(data_type) or types.is_decimal128(data_type)
    return bool(types.is_null(data_type) or is_integral(data_type) or is_bytes(data_type) or raw)


def parts_of(data_type: pa.DataType) -> list[pa.DataType]:
    """The types that a nested type is made of: the element of an array, the entry of a map, the fields of a row."""
    if pa.types.is_map(data_type):
        return [pa.struct([pa.field("key", data_type.key_type), pa.field("value", data_type.item_type)])]
    if pa.types.is_list(data_type):
        return [data_type.value_type]
    if pa.types.is_struct(data_type):
        return [data_type.field(place).type for place in range(data_type.num_fields)]
    return []


def integers_of(array: pa.Array) -> Numbers:
    """The numbers of a type that `is_integral`; where there is NULL, any number."""
    data_type = array.type
    if pa.types.is_boolean(data_type):
        array, data_type = array.cast(pa.int8()), pa.int8()
    if not len(array):
        return np.empty(0, np.int64)
    buffer = array.buffers()[1]
    if pa.types.is_decimal(data_type):
        return np.frombuffer(buffer, np.int64, 2 * len(array), 16 * array.offset)[::2]
    dtype = _DTYPES[data_type.bit_width]
    return np.frombuffer(buffer, dtype, len(array), array.offset * data_type.bit_width // 8).astype(np.int64)


def from_integers(numbers: Numbers, valid: Flags | None, data_type: pa.DataType) -> pa.Array:
    """The array of those numbers."""
    if pa.types.is_boolean(data_type):
        content: npt.NDArray[Any] = np.packbits(numbers.astype(np.bool_), bitorder="little")
    elif pa.types.is_decimal(data_type):
        content = np.stack([numbers, numbers >> 63], axis=1)
    else:
        content = numbers.astype(_DTYPES[data_type.bit_width])
    return pa.Array.from_buffers(data_type, len(numbers), [validity(valid), pa.py_buffer(content)])


def validity(valid: Flags | None) -> pa.Buffer | None:
    """The bits that tell NULL from values; none where there is no NULL."""
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def elements_of(array: pa.Array) -> tuple[Numbers, pa.Array]:
    """How many elements each array or map has, NULL having none, and all elements one after another."""
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        buffers = array.buffers()[:2]
        listed = pa.list_(entries.type)
        array = pa.ListArray.from_buffers(listed, len(array), buffers, -1, array.offset, [entries])
    if not len(array):
        return np.empty(0, np.int64), array.values.slice(0, 0)
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    lengths = np.diff(offsets).astype(np.int64)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return lengths, array.flatten()
