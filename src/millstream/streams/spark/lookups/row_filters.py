"""Conditions on the columns of a looked-up table alone: rows that do not fit are not loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.plan.evaluation import literal_last, plain_literal
from millstream.streams.plan.expressions import Call, Column, Expression, Literal, columns_of
from millstream.streams.plan.types import INTEGER_KINDS, DataType, TypeKind
from millstream.streams.spark.operators.values import plain_type
from millstream.streams.sql.binder.relations import rename_columns

__all__ = ["COMPARED", "filter_batch", "push_conditions"]

COMPARED: Final[Mapping[str, Callable[..., Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
"""What compares whole columns."""

_KINDS = (
    *INTEGER_KINDS, TypeKind.BOOLEAN, TypeKind.DECIMAL, TypeKind.STRING, TypeKind.DATE, TypeKind.TIMESTAMP,
    TypeKind.TIMESTAMP_LTZ,
)  # fmt: skip


def push_conditions(
    conditions: Sequence[Expression], columns: Mapping[str, str]
) -> tuple[tuple[Call, ...], tuple[Expression, ...]]:
    """The conditions that a load can apply, over the table's names of columns, and the others as they are.

    `columns` are the table's stored columns by their names in the conditions. What can be applied compares a column
    with a constant, or asks whether it is NULL.
    """
    applied: list[Call] = []
    others: list[Expression] = []
    for condition in conditions:
        turned = _simple(condition, columns)
        if turned is None:
            others.append(condition)
        else:
            call = rename_columns(turned, dict(columns))
            assert isinstance(call, Call)
            applied.append(call)
    return tuple(applied), tuple(others)


def _simple(condition: Expression, columns: Collection[str]) -> Call | None:
    """The condition with its column first; None for any other form."""
    condition = literal_last(condition)
    if not isinstance(condition, Call):
        return None
    column, constants = condition.arguments[0], condition.arguments[1:]
    if not isinstance(column, Column) or column.name not in columns or column.type.kind not in _KINDS:
        return None
    if condition.function in ("IS NULL", "IS NOT NULL"):
        return condition
    if condition.function not in (*COMPARED, "IN"):
        return None
    # A constant of another kind would be compared after a cast.
    same = all(isinstance(one, Literal) and _fits(one, column.type) for one in constants)
    return condition if same else None


def _fits(literal: Literal, of: DataType) -> bool:
    return literal.value is not None and (
        literal.type.kind is of.kind or (literal.type.kind in INTEGER_KINDS and of.kind in INTEGER_KINDS)
    )


def filter_batch(batch: pa.RecordBatch, filters: Sequence[Call]) -> pa.RecordBatch:
    """The rows of a batch for which all filters hold; its columns are named as in the filters."""
    if not filters:
        return batch
    keeps = [_mask(batch, call) for call in filters]
    return batch.filter(reduce(pc.and_kleene, keeps))


def _mask(batch: pa.RecordBatch, call: Call) -> pa.Array:
    column = batch.column(next(iter(columns_of(call))))
    match call.function:
        case "IS NULL":
            return pc.is_null(column)
        case "IS NOT NULL":
            return pc.is_valid(column)
        case "IN":
            return pc.is_in(column, value_set=_constants(call, column.type))
        case function:
            return COMPARED[function](column, _constants(call, column.type)[0])


def _constants(call: Call, of: pa.DataType) -> pa.Array:
    values = [plain_literal(one) for one in call.arguments[1:] if isinstance(one, Literal)]
    return pa.array(values, plain_type(of)).cast(of)
