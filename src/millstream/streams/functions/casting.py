"""Type rules: which CASTs exist, which may fail, and the common type of several values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import TypeVar

from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.types import BOOLEAN, DOUBLE, MAX_DIGITS, NULL, DataType, TypeKind

__all__ = [
    "FailingCast",
    "at_length",
    "can_cast",
    "can_fail",
    "common_type",
    "failing_casts",
    "keeps_length",
    "same_shape",
]


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


_WIDTH = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
_INTEGER_DIGITS = {TypeKind.TINYINT: 3, TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 19}
_TIMES_BY_WIDTH = (TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ)


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
    if left.kind in _TIMES_BY_WIDTH and right.kind in _TIMES_BY_WIDTH:
        wide = max(left, right, key=lambda data_type: _TIMES_BY_WIDTH.index(data_type.kind))
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


@dataclass(frozen=True, slots=True)
class FailingCast:
    """`condition` is TRUE for the rows in which `cast` is asked for and finds no value; never for TRY_CAST."""

    cast: Cast
    condition: Expression


def failing_casts(expression: Expression) -> Iterator[FailingCast]:
    """All of them, the inner ones first. What stands in a branch of CASE or IF counts where the branch is taken."""
    match expression:
        case Column() | Literal():
            return
        case Cast(operand=operand, safe=safe):
            yield from failing_casts(operand)
            if not safe and can_fail(operand.type, expression.type):
                given = Call("IS NOT NULL", (operand,), BOOLEAN)
                lost = Call("IS NULL", (expression,), BOOLEAN)
                yield FailingCast(expression, Call("AND", (given, lost), BOOLEAN))
        case Call(function="IF", arguments=(condition, then, otherwise)):
            yield from failing_casts(Case(((condition, then),), otherwise, expression.type))
        case Call(arguments=arguments):
            for argument in arguments:
                yield from failing_casts(argument)
        case Case(branches=branches, otherwise=otherwise):
            yield from _of_case(branches, otherwise)


def _of_case(
    branches: tuple[tuple[Expression, Expression], ...], otherwise: Expression | None
) -> Iterator[FailingCast]:
    for place, (condition, result) in enumerate(branches):
        yield from failing_casts(condition)
        for found in failing_casts(result):
            yield FailingCast(
                found.cast, _restrict_to_branch([one for one, _ in branches[:place]], condition, found.condition)
            )
    if otherwise is not None:
        for found in failing_casts(otherwise):
            always = Literal(True, BOOLEAN)
            yield FailingCast(found.cast, _restrict_to_branch([one for one, _ in branches], always, found.condition))


def _restrict_to_branch(before: list[Expression], condition: Expression, failed: Expression) -> Expression:
    """`failed` in the branch of `condition` alone: FALSE where one before it is taken."""
    never = Literal(False, BOOLEAN)
    return Case((*((one, never) for one in before), (condition, failed)), never, BOOLEAN)
