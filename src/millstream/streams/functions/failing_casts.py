"""The CASTs of an expression that may fail, each with the condition under which it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.streams.functions.casting import can_fail
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.types import BOOLEAN

__all__ = ["FailingCast", "failing_casts"]


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
