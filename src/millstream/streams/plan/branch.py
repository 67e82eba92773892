"""A branch: filters and projections over one table, as what it asks of a row of the table and what it makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.conditions import operands_of_and
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.nodes import Filter, Node, Project, Scan
from millstream.streams.plan.substitution import substitute
from millstream.streams.plan.tables import ComputedColumn, Table

__all__ = ["Branch", "branch_of", "to_stored_columns"]


@dataclass(frozen=True, slots=True)
class Branch:
    """All `conditions` have to hold, and `columns` are given; both are over the columns of the scan."""

    scan: Scan
    conditions: tuple[Expression, ...]
    columns: tuple[tuple[str, Expression], ...]


def branch_of(node: Node) -> Branch | None:
    """The branch that the node is; None if it is more, if its rows change, or if a bad value ends the job there."""
    if isinstance(node, Scan):
        if changelog_of(node) is not ChangelogMode.APPEND:
            return None
        return Branch(node, (), tuple((of.name, Column(of.name, of.type)) for of in node.schema.fields))
    if not isinstance(node, Filter | Project):
        return None
    below = branch_of(node.input)
    if below is None:
        return None
    values = dict(below.columns)
    if isinstance(node, Project):
        columns = tuple((name, substitute(value, values)) for name, value in node.columns)
        return None if any(_fails(value) for _, value in columns) else Branch(below.scan, below.conditions, columns)
    if _fails(node.predicate):
        return None
    asked = tuple(substitute(one, values) for one in operands_of_and(node.predicate))
    return Branch(below.scan, below.conditions + asked, below.columns)


def to_stored_columns(expression: Expression, table: Table) -> Expression:
    """The expression over what is stored, without the table's computed columns."""
    return substitute(
        expression,
        {column.name: column.expression for column in table.columns if isinstance(column, ComputedColumn)},
    )


def _fails(expression: Expression) -> bool:
    """Whether it has a call that ends the job: no row may be passed over before it."""
    return (isinstance(expression, Call) and expression.function == "FAIL") or any(map(_fails, _parts(expression)))


def _parts(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Call(arguments=arguments):
            yield from arguments
        case Case(branches=branches, otherwise=otherwise):
            for condition, result in branches:
                yield from (condition, result)
            if otherwise is not None:
                yield otherwise
        case Cast(operand=operand):
            yield operand
        case Column() | Literal():
            return
