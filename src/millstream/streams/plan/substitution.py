"""Expressions over one node's columns as expressions over the columns below it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal

__all__ = ["substitute"]


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """The expression with the values in the place of the columns of those names; others stay."""
    match expression:
        case Column(name=name):
            return values.get(name, expression)
        case Literal():
            return expression
        case Call(arguments=arguments):
            return replace(expression, arguments=tuple(substitute(one, values) for one in arguments))
        case Case(branches=branches, otherwise=otherwise):
            return replace(
                expression,
                branches=tuple((substitute(one, values), substitute(other, values)) for one, other in branches),
                otherwise=None if otherwise is None else substitute(otherwise, values),
            )
        case Cast(operand=operand):
            return replace(expression, operand=substitute(operand, values))
