"""Conditions of lookups: on the columns of the looked-up table alone, and over pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.key_values import Flags
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.evaluation import literal_last, plain_literal
from millstream.streams.plan.expressions import Call, Cast, Column, Expression, Literal, columns_of
from millstream.streams.plan.types import INTEGER_KINDS, DataType, TypeKind
from millstream.streams.spark.operators.arrow_rows import plain_type, rows_of
from millstream.streams.sql.binder.relations import rename_columns

__all__ = ["COMPARED", "PairCondition", "filter_batch", "pair_condition", "push_conditions"]


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


PairCondition = Callable[[pa.RecordBatch], Flags]
"""For which pairs a condition holds; the columns stand in the order of the names that it was made with."""

_Truth = Callable[[Sequence[pa.Array]], pa.Array]

_ORDERED: Final = (TypeKind.STRING, TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ)
_JUNCTIONS: Final = {"AND": pc.and_kleene, "OR": pc.or_kleene}


def pair_condition(condition: Expression, names: Sequence[str]) -> PairCondition:
    """The condition over pairs with these columns. Raises JobError JOB_FAILED where it cannot be evaluated."""
    places = {name: place for place, name in enumerate(names)}
    truth = _truth(condition, places)
    if truth is not None:
        return lambda pairs: np.asarray(pc.fill_null(truth(pairs.columns), False))
    fits = evaluator(condition, places)

    def by_row(pairs: pa.RecordBatch) -> Flags:
        rows = rows_of(pairs, pairs.num_columns) if pairs.num_columns else [()] * pairs.num_rows
        return np.fromiter((fits(one) is True for one in rows), np.bool_, pairs.num_rows)

    return by_row


def _truth(condition: Expression, places: Mapping[str, int]) -> _Truth | None:
    """The condition as a function of columns; None where it asks for more than comparing them."""
    if not isinstance(condition, Call):
        return None
    arguments = condition.arguments
    if condition.function in (*_JUNCTIONS, "NOT"):
        parts = [part for one in arguments if (part := _truth(one, places)) is not None]
        if len(parts) < len(arguments):
            return None
        if condition.function == "NOT":
            return lambda columns: pc.invert(parts[0](columns))
        junction = _JUNCTIONS[condition.function]
        return lambda columns: reduce(junction, (part(columns) for part in parts))
    if condition.function in COMPARED and len(arguments) == 2:
        return _comparison(condition, places)
    if condition.function in ("IS NULL", "IS NOT NULL") and isinstance(arguments[0], Column):
        place, ask = places[arguments[0].name], pc.is_null if condition.function == "IS NULL" else pc.is_valid
        return lambda columns: ask(columns[place])
    return None


def _comparison(call: Call, places: Mapping[str, int]) -> _Truth | None:
    left, right = map(_without_cast, call.arguments)
    if not _are_comparable(left.type, right.type, call.function):
        return None
    compare = COMPARED[call.function]
    match left, right:
        case Column(), Column():
            first, second = places[left.name], places[right.name]
            return lambda columns: compare(columns[first], columns[second])
        case Column(), Literal() if right.value is not None:
            first = places[left.name]
            return lambda columns: compare(columns[first], _constant(right, columns[first].type))
        case Literal(), Column() if left.value is not None:
            second = places[right.name]
            return lambda columns: compare(_constant(left, columns[second].type), columns[second])
        case _:
            return None


def _without_cast(expression: Expression) -> Expression:
    """What stands in a cast that changes no value."""
    if not isinstance(expression, Cast) or not (expression.type.is_integer and expression.operand.type.is_integer):
        return expression
    is_wider = INTEGER_KINDS.index(expression.type.kind) >= INTEGER_KINDS.index(expression.operand.type.kind)
    return expression.operand if is_wider else expression


def _are_comparable(first: DataType, second: DataType, function: str) -> bool:
    if first.is_integer and second.is_integer:
        return True
    is_ordered = first.kind in _ORDERED or (first.kind is TypeKind.BOOLEAN and function in ("=", "<>"))
    return is_ordered and first.kind is second.kind


def _constant(literal: Literal, of: pa.DataType) -> Any:
    # A whole number may be beyond the column's type.
    wanted = pa.int64() if pa.types.is_integer(of) else of
    return pa.scalar(plain_literal(literal), plain_type(wanted)).cast(wanted)
