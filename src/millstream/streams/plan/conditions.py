"""Conditions taken apart and put together by AND."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.streams.plan.expressions import Call, Expression, Literal
from millstream.streams.plan.types import BOOLEAN

__all__ = ["conjunction", "conjuncts_of", "operands_of_and"]


def operands_of_and(condition: Expression) -> list[Expression]:
    """The parts that AND joins, from left to right; the condition itself where it is no AND."""
    if isinstance(condition, Call) and condition.function == "AND":
        return [part for argument in condition.arguments for part in operands_of_and(argument)]
    return [condition]


def conjuncts_of(condition: Expression | None) -> list[Expression]:
    """The same without those that always hold; none for no condition."""
    always = Literal(True, BOOLEAN.as_nullable(False))
    return [] if condition is None else [part for part in operands_of_and(condition) if part != always]


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """All conditions as one, in halves so that many make a shallow tree; None for none."""
    if not conditions:
        return None
    if len(conditions) == 1:
        return conditions[0]
    middle = (len(conditions) + 1) // 2
    halves = conjunction(conditions[:middle]), conjunction(conditions[middle:])
    return Call("AND", tuple(half for half in halves if half is not None), BOOLEAN)
