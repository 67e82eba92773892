"""Which types CAST turns into which others, as in Flink."""

from __future__ import annotations

from itertools import starmap
from typing import TypeVar

from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["at_length", "can_cast", "can_fail", "keeps_length", "same_shape"]

_Sized = TypeVar("_Sized", str, bytes)

_TIMES = (TypeKind.DATE, TypeKind.TIME, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ)
_DEFAULT_DIGITS = 10
_WHOLE_DIGITS = {TypeKind.TINYINT: 3, TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 19}
_NESTED = (TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW)


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether CAST is defined. Numbers and times do not become each other: UNIX_TIMESTAMP and TO_TIMESTAMP_LTZ do."""
    kind, wanted = source.kind, target.kind
    if kind is TypeKind.VARIANT:
        return target.is_number or wanted in (TypeKind.STRING, TypeKind.BOOLEAN, TypeKind.VARIANT)
    if kind in (TypeKind.NULL, TypeKind.STRING):
        return wanted not in (*_NESTED, TypeKind.VARIANT) or kind is TypeKind.NULL
    if wanted is TypeKind.STRING:
        return True
    if kind in _NESTED or wanted in _NESTED:
        return kind is wanted and _parts_cast(source, target)
    if wanted is TypeKind.BOOLEAN:
        return kind is TypeKind.BOOLEAN or source.is_integer
    if target.is_number:
        return source.is_number or kind is TypeKind.BOOLEAN
    if wanted in _TIMES:
        return kind in _TIMES and {kind, wanted} != {TypeKind.DATE, TypeKind.TIME}
    return kind is wanted


def can_fail(source: DataType, target: DataType) -> bool:
    """Whether CAST of a value that is not NULL may find none. Narrower whole numbers wrap; parts are not looked at."""
    if source.kind is TypeKind.STRING:
        return target.kind not in (TypeKind.STRING, TypeKind.BYTES)
    if source.kind is TypeKind.VARIANT:
        return target.is_number or target.kind is TypeKind.BOOLEAN
    if target.kind is not TypeKind.DECIMAL or not source.is_number:
        return False
    whole = _WHOLE_DIGITS.get(source.kind)
    if source.kind is TypeKind.DECIMAL:
        whole = (source.precision or _DEFAULT_DIGITS) - (source.scale or 0)
    return whole is None or whole > (target.precision or _DEFAULT_DIGITS) - (target.scale or 0)


def same_shape(left: DataType, right: DataType) -> bool:
    """Whether both are the same type down to the last field, whatever may be NULL and however long it may be."""
    return (
        left.kind is right.kind
        and left.scale == right.scale
        and len(left.elements) == len(right.elements)
        and all(starmap(same_shape, zip(left.elements, right.elements, strict=True)))
        and [field.name for field in left.fields] == [field.name for field in right.fields]
        and all(same_shape(mine.type, other.type) for mine, other in zip(left.fields, right.fields, strict=True))
    )


def keeps_length(source: DataType, target: DataType) -> bool:
    """Whether each text or bytes of the one type has a length of the other."""
    if target.precision is None:
        return True
    if target.fixed:
        return source.fixed and source.precision == target.precision
    return source.precision is not None and source.precision <= target.precision


def at_length(value: _Sized, target: DataType) -> _Sized:
    """A text or bytes cut, and for CHAR and BINARY filled with spaces or zeros, to the type's length."""
    if target.precision is None:
        return value
    cut = value[: target.precision]
    if not target.fixed:
        return cut
    return cut.ljust(target.precision) if isinstance(cut, str) else cut.ljust(target.precision, b"\0")


def _parts_cast(source: DataType, target: DataType) -> bool:
    mine = (*source.elements, *(field.type for field in source.fields))
    wanted = (*target.elements, *(field.type for field in target.fields))
    return len(mine) == len(wanted) and all(starmap(can_cast, zip(mine, wanted, strict=True)))
