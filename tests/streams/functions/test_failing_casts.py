"""Under which condition a CAST of an expression fails."""

from __future__ import annotations

import pytest

from millstream.streams.functions.casting import can_fail, failing_casts
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, TypeKind

WORD = Column("word", STRING)
OK = Column("ok", BOOLEAN)
NUMBER = Cast(WORD, INT)
LOST = "AND(IS NOT NULL(word), IS NULL(CAST(word AS INT)))"


def price(precision: int, scale: int) -> DataType:
    return DataType(TypeKind.DECIMAL, precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("source", "target", "fails"),
    [(STRING, INT, True), (STRING, STRING, False), (STRING, DataType(TypeKind.BYTES), False), (BIGINT, INT, False),
     (DOUBLE, price(9, 2), True), (INT, price(12, 2), False), (INT, price(11, 2), True), (price(5, 2), price(6, 3), False),
     (price(5, 2), price(5, 3), True), (INT, STRING, False)],
)  # fmt: skip
def test_a_cast_may_fail_where_a_value_has_no_place_in_the_type(
    source: DataType, target: DataType, fails: bool
) -> None:
    assert can_fail(source, target) is fails


@pytest.mark.parametrize(
    ("expression", "conditions"),
    [
        (NUMBER, [LOST]),
        (Cast(WORD, INT, safe=True), []),
        (Call("+", (NUMBER, NUMBER), INT), [LOST, LOST]),
        (
            Case(((OK, NUMBER),), None, INT),
            [f"CASE WHEN ok THEN {LOST} ELSE False END"],
        ),
        (
            Call("IF", (OK, Column("small", INT), NUMBER), INT),
            [f"CASE WHEN ok THEN False WHEN True THEN {LOST} ELSE False END"],
        ),
        (Case(((Call(">", (NUMBER, NUMBER), BOOLEAN), WORD),), None, STRING), [LOST, LOST]),
        (WORD, []),
    ],
)
def test_a_cast_counts_where_it_is_asked_for(expression: Expression, conditions: list[str]) -> None:
    assert [str(found.condition) for found in failing_casts(expression)] == conditions
