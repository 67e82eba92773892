"""The one type that several values share, as CASE, COALESCE and comparisons need it; Flink's widening rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap

from millstream.streams.plan.types import DOUBLE, MAX_DIGITS, NULL, DataType, TypeKind

__all__ = ["common_type"]

_WIDTH = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
_INTEGER_DIGITS = {TypeKind.TINYINT: 3, TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 19}
_TIMES = (TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ)


def common_type(types: Sequence[DataType]) -> DataType:
    """The widest of the types; NULL where all are. Raises TypeError where they do not go together."""
    result = NULL
    for data_type in types:
        result = _pair(result, data_type)
    return result.as_nullable()


def _pair(left: DataType, right: DataType) -> DataType:
    if TypeKind.NULL in (left.kind, right.kind):
        return right if left.kind is TypeKind.NULL else left
    if left.is_number and right.is_number:
        return _number(left, right)
    if left.kind is right.kind and _is_nested(left) and len(left.fields) == len(right.fields):
        return _merge_nested(left, right)
    if left.kind is right.kind and not _is_nested(left):
        return _longer(left, right)
    if left.kind in _TIMES and right.kind in _TIMES:
        wide = max(left, right, key=lambda data_type: _TIMES.index(data_type.kind))
        return replace(wide, precision=max(left.precision or 0, right.precision or 0) or wide.precision)
    raise TypeError(f"one type for {left} and {right}")


def _longer(left: DataType, right: DataType) -> DataType:
    if left.kind not in (TypeKind.STRING, TypeKind.BYTES):
        return left if (left.precision or 0) >= (right.precision or 0) else right
    if left.precision is None or right.precision is None:
        return DataType(left.kind)
    fixed = left.fixed and right.fixed and left.precision == right.precision
    return DataType(left.kind, precision=max(left.precision, right.precision), fixed=fixed)


def _is_nested(data_type: DataType) -> bool:
    return bool(data_type.elements or data_type.fields)


def _merge_nested(left: DataType, right: DataType) -> DataType:
    """The elements and fields each in their common type; the fields keep the first's names."""
    elements = tuple(starmap(_either, zip(left.elements, right.elements, strict=True)))
    fields = tuple(
        replace(mine, type=_either(mine.type, other.type))
        for mine, other in zip(left.fields, right.fields, strict=True)
    )
    return replace(left, elements=elements, fields=fields)


def _either(left: DataType, right: DataType) -> DataType:
    return _pair(left, right).as_nullable(left.nullable or right.nullable)


def _number(left: DataType, right: DataType) -> DataType:
    kinds = (left.kind, right.kind)
    if TypeKind.DOUBLE in kinds or (TypeKind.FLOAT in kinds and TypeKind.DECIMAL in kinds):
        return DOUBLE
    if TypeKind.FLOAT in kinds:
        return DataType(TypeKind.FLOAT)
    if TypeKind.DECIMAL in kinds:
        (left_whole, left_scale), (right_whole, right_scale) = _digits(left), _digits(right)
        scale = max(left_scale, right_scale)
        return DataType(TypeKind.DECIMAL, precision=min(MAX_DIGITS, max(left_whole, right_whole) + scale), scale=scale)
    return DataType(max(kinds, key=_WIDTH.index))


def _digits(data_type: DataType) -> tuple[int, int]:
    if data_type.kind is TypeKind.DECIMAL:
        scale = data_type.scale or 0
        return (data_type.precision or 10) - scale, scale
    return _INTEGER_DIGITS[data_type.kind], 0
