"""Conditions over pairs of rows hold where the evaluation of each row says so, whether or not whole columns are asked."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.operators import evaluate
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.expressions import Call, Cast, Column, Expression, Literal
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING, DataType, TypeKind
from millstream.streams.spark.lookups import row_conditions
from millstream.streams.spark.lookups.row_conditions import pair_condition
from millstream.streams.spark.operators.arrow_rows import rows_of

DATE = DataType(TypeKind.DATE)
TYPES = {
    "n": (BIGINT, pa.int64()), "m": (INT, pa.int32()), "s": (STRING, pa.string()), "t": (STRING, pa.string()),
    "f": (BOOLEAN, pa.bool_()), "g": (BOOLEAN, pa.bool_()), "d": (DATE, pa.date32()), "e": (DATE, pa.date32()),
}  # fmt: skip
VALUES: dict[TypeKind, st.SearchStrategy[Any]] = {
    TypeKind.BIGINT: st.sampled_from([-1, 0, 1, 2**40]),
    TypeKind.INT: st.integers(-1, 2),
    TypeKind.STRING: st.sampled_from(["", "a", "b", "ä", "𝄞", "\ue000"]),
    TypeKind.BOOLEAN: st.booleans(),
    TypeKind.DATE: st.sampled_from([datetime.date(1969, 12, 31), datetime.date(2026, 1, 2)]),
}
ORDERS = ("=", "<>", "<", "<=", ">", ">=")


def column(name: str) -> Column:
    return Column(name, TYPES[name][0])


def compared(first: Expression, second: Expression, orders: tuple[str, ...] = ORDERS) -> st.SearchStrategy[Expression]:
    return st.sampled_from(orders).map(lambda order: Call(order, (first, second), BOOLEAN))


def constants(name: str) -> st.SearchStrategy[Expression]:
    return VALUES[TYPES[name][0].kind].map(lambda value: Literal(value, TYPES[name][0].as_nullable(False)))


def with_constant(name: str, *, first: bool) -> st.SearchStrategy[Expression]:
    """A column compared with a constant, which may stand first."""

    def both(one: Expression) -> st.SearchStrategy[Expression]:
        return compared(one, column(name)) if first else compared(column(name), one)

    return constants(name).flatmap(both)


simple: st.SearchStrategy[Expression] = st.one_of(
    compared(column("n"), Cast(column("m"), BIGINT)),
    compared(column("m"), column("m")),
    compared(column("s"), column("t")),
    compared(column("d"), column("e")),
    compared(column("f"), column("g"), ("=", "<>")),
    *(with_constant(name, first=False) for name in ("n", "m", "s", "d")),
    *(with_constant(name, first=True) for name in ("m", "t")),
    st.tuples(st.sampled_from(["IS NULL", "IS NOT NULL"]), st.sampled_from(list(TYPES))).map(
        lambda one: Call(one[0], (column(one[1]),), BOOLEAN)
    ),
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda one: Call(one[0], tuple(one[1]), BOOLEAN)
        ),
        inner.map(lambda one: Call("NOT", (one,), BOOLEAN)),
    ),
    max_leaves=5,
)
batches = st.lists(st.tuples(*(st.none() | VALUES[kind.kind] for kind, _ in TYPES.values())), max_size=8)


@settings(deadline=None, max_examples=scaled(200))
@given(condition=conditions, rows=batches)
def test_whole_columns_say_what_the_evaluation_of_each_row_says(condition: Expression, rows: list[Any]) -> None:
    schema = pa.schema([pa.field(name, of) for name, (_, of) in TYPES.items()])
    pairs = pa.RecordBatch.from_pylist([dict(zip(TYPES, row, strict=True)) for row in rows], schema)
    fits = evaluator(condition, {name: place for place, name in enumerate(TYPES)})
    wanted = [fits(row) is True for row in rows_of(pairs, len(TYPES))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_conditions, "evaluator", _refused)
        found = pair_condition(condition, list(TYPES))(pairs)
    assert found.dtype == np.bool_
    assert found.tolist() == wanted


def _refused(*_arguments: Any) -> Any:
    raise AssertionError("row by row")


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (Call("LIKE", (column("s"), Literal("a%", STRING)), BOOLEAN), [True, False, False]),
        (Call("=", (Call("UPPER", (column("s"),), STRING), Literal("B", STRING)), BOOLEAN), [False, True, False]),
        (Call("=", (column("s"), Literal(None, STRING)), BOOLEAN), [False, False, False]),
    ],
)
def test_other_conditions_are_evaluated_row_by_row(condition: Expression, wanted: list[bool]) -> None:
    pairs = pa.RecordBatch.from_arrays([pa.array(["ab", "b", None])], ["s"])
    assert pair_condition(condition, ["s"])(pairs).tolist() == wanted
    assert evaluate.evaluator is evaluator


def test_a_condition_without_columns_has_an_answer_for_each_pair() -> None:
    never = Call("=", (Literal(1, INT), Literal(2, INT)), BOOLEAN)
    pairs = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    assert pair_condition(never, [])(pairs).tolist() == [False] * 3
