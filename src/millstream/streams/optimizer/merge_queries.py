"""Homologous merge: outputs that differ only in conditions and constants become one.

`INSERT INTO alerts SELECT 'r17', host FROM events WHERE ...` a thousand times is one node with a thousand conditions
and a column of a thousand constants: what runs does not grow with the rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from millstream.streams.connectors.registry import connector_of
from millstream.streams.functions.spec import array_of
from millstream.streams.plan.branch import Branch, branch_of, to_stored_columns
from millstream.streams.plan.expressions import BRANCHES, Call, Cast, Column, Expression, Literal
from millstream.streams.plan.fan_out import Constants, FanOut
from millstream.streams.plan.nodes import Node, Project, Scan
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import BOOLEAN, INT, TypeKind
from millstream.streams.plan.user_calls import calls_users_functions
from millstream.streams.rules_sql.from_sql import split_conjuncts

__all__ = ["MERGED_FROM", "MergedQuery", "merge_queries", "sink_keys"]

MERGED_FROM: Final = 2
"""Outputs of one shape from which on they are merged: two already share one sink and one copy of each row's columns."""

_CONSTANT = "__constant{}"
_NAMES: Final = ("rule", "rule_id", "rule_name", "id")
"""Columns that tell of a rule which it is, as those of rules in SQL."""


@dataclass(frozen=True, slots=True)
class MergedQuery:
    """A node that stands for the outputs of those numbers; the rows of all of them go to one sink."""

    node: Node
    numbers: tuple[int, ...]

    @property
    def name_column(self) -> str | None:
        """A column of texts that sets the rows of each output apart; None where there is none, or one output."""
        project = self.node
        if not isinstance(project, Project) or not isinstance(project.input, FanOut):
            return None
        different = {one.name for one in project.input.constants if _is_different(one)}
        named = [name for name, value in project.columns if isinstance(value, Column) and value.name in different]
        return next((name for name in named if name in _NAMES), named[0] if named else None)


def _is_different(constants: Constants) -> bool:
    return constants.type.kind is TypeKind.STRING and len(set(constants.values)) == len(constants.values)


@dataclass(slots=True)
class _Group:
    table: Table
    project: Project
    numbers: list[int] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    constants: list[tuple[Literal, ...]] = field(default_factory=list)


def merge_queries(outputs: Sequence[tuple[Node, Hashable]]) -> list[MergedQuery]:
    """The outputs, in the order of their first numbers; only those with equal sinks are merged."""
    groups: dict[Hashable, _Group] = {}
    alone: list[MergedQuery] = []
    tables: list[Table] = []
    for number, (node, sink) in enumerate(outputs):
        branch = branch_of(node)
        if branch is None or not isinstance(node, Project) or calls_users_functions(node):
            alone.append(MergedQuery(node, (number,)))
            continue
        if branch.scan.table not in tables:
            tables.append(branch.scan.table)
        constants: list[Literal] = []
        shape = tuple((name, _shape(value, constants)) for name, value in branch.columns)
        key = (sink, tables.index(branch.scan.table), shape, node.rowtime, node.proctime, _is_mergeable(branch))
        group = groups.setdefault(key, _Group(branch.scan.table, replace(node, columns=shape)))
        group.numbers.append(number)
        group.branches.append(branch)
        group.constants.append(tuple(constants))
    for group in groups.values():
        if len(group.numbers) < MERGED_FROM:
            alone += [MergedQuery(outputs[number][0], (number,)) for number in group.numbers]
        else:
            alone.append(MergedQuery(_node(group), tuple(group.numbers)))
    return sorted(alone, key=lambda one: one.numbers[0])


def sink_keys(tables: Sequence[Table | None]) -> list[Hashable]:
    """What tells the sinks of outputs apart; equal for those whose rows may go to one. None stands alone."""
    known: list[Table] = []
    keys: list[Hashable] = []
    for number, table in enumerate(tables):
        if table is None or not connector_of(table.connector).merges:
            keys.append(("alone", number))
            continue
        if table not in known:
            known.append(table)
        keys.append(known.index(table))
    return keys


def _is_mergeable(branch: Branch) -> bool:
    """Whether a source could judge the branch: those that it cannot do not keep it from judging the others."""
    return not split_conjuncts([to_stored_columns(one, branch.scan.table) for one in branch.conditions]).rest


def _shape(value: Expression, constants: list[Literal]) -> Expression:
    """The expression with a name in the place of its constant, which goes to `constants`."""
    if isinstance(value, Cast):
        return replace(value, operand=_shape(value.operand, constants))
    if isinstance(value, Literal) and isinstance(value.value, str | int | bool) and _is_plain(value):
        constants.append(value)
        return Column(_CONSTANT.format(len(constants) - 1), value.type)
    return value


def _is_plain(literal: Literal) -> bool:
    """Whether the value is of the kind that its type says: INTERVALs are numbers too."""
    kinds = {bool: "BOOLEAN", str: "STRING"}
    wanted = kinds.get(type(literal.value))
    return literal.type.is_integer if wanted is None else literal.type.kind.value == wanted


def _node(group: _Group) -> Node:
    names = {name for branch in group.branches for name in branch.scan.columns}
    scan = Scan(group.table, tuple(name for name in group.table.schema.names if name in names))
    conditions = tuple(_and_of(branch.conditions) for branch in group.branches)
    columns = tuple(
        Constants(
            _CONSTANT.format(place),
            same[0].type,
            tuple(one.value for one in same if isinstance(one.value, str | int | bool)),
        )
        for place, same in enumerate(zip(*group.constants, strict=True))
    )
    return replace(group.project, input=FanOut(scan, Call(BRANCHES, conditions, array_of(INT)), columns))


def _and_of(conditions: Sequence[Expression]) -> Expression:
    if not conditions:
        return Literal(True, BOOLEAN)
    return conditions[0] if len(conditions) == 1 else Call("AND", tuple(conditions), BOOLEAN)
