"""A condition of a join over pairs of rows: by whole columns where it compares these alone, else row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.key_values import Flags
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.evaluation import plain_literal
from millstream.streams.plan.expressions import Call, Cast, Column, Expression, Literal
from millstream.streams.plan.types import INTEGER_KINDS, DataType, TypeKind
from millstream.streams.spark.lookups.row_filters import COMPARED
from millstream.streams.spark.operators.values import plain_type, rows_of

__all__ = ["PairCondition", "pair_condition"]

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
