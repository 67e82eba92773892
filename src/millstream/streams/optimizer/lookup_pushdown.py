"""Pushes WHERE conditions into lookups, so that unneeded rows are not loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from millstream.streams.plan.evaluation import COMPARISONS
from millstream.streams.plan.expressions import Call, Column, Expression, Literal, conjunction, conjuncts_of
from millstream.streams.plan.joins import JoinKind, LookupJoin
from millstream.streams.plan.nodes import Filter, Node, inputs_of, with_inputs

__all__ = ["push_into_lookups"]

_NARROWING: Final = COMPARISONS | {"IN", "IS NULL", "IS NOT NULL"}


def push_into_lookups(node: Node) -> Node:
    """The plan with each condition that stands right above an inner lookup, and compares a column of its table with
    constants, in the lookup's own condition.

    A LEFT lookup keeps rows that find nothing, which such a condition would see as NULL: nothing moves into it.
    """
    node = with_inputs(node, tuple(map(push_into_lookups, inputs_of(node))))
    if not isinstance(node, Filter) or not isinstance(node.input, LookupJoin) or node.input.kind is not JoinKind.INNER:
        return node
    join = node.input
    theirs = {name for name, _ in join.columns}
    conditions = conjuncts_of(node.predicate)
    moved = [one for one in conditions if _compares(one, theirs)]
    if not moved:
        return node
    join = replace(join, condition=conjunction([*conjuncts_of(join.condition), *moved]))
    rest = conjunction([one for one in conditions if one not in moved])
    return join if rest is None else Filter(join, rest)


def _compares(condition: Expression, theirs: set[str]) -> bool:
    """Whether the condition compares one column of the table with constants."""
    if not isinstance(condition, Call) or condition.function not in _NARROWING:
        return False
    columns = [one for one in condition.arguments if not isinstance(one, Literal)]
    return len(columns) == 1 and isinstance(columns[0], Column) and columns[0].name in theirs
