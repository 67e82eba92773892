"""The inputs of a plan: a branch over one table, the columns of each table, and the processing-time clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import (
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    operands_of_and,
    substitute,
)
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, WindowRows, inputs_of, scans_of
from millstream.streams.plan.tables import ComputedColumn, Table
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.plan.windows import Attached

__all__ = ["Branch", "branch_of", "columns_read", "follows_wall_clock", "to_stored_columns"]


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
    conditions = tuple(substitute(one, values) for one in operands_of_and(node.predicate))
    return Branch(below.scan, below.conditions + conditions, below.columns)


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


_Read = tuple[str, str | None]
"""A column, and the field of it; None: all of it."""


def columns_read(table: Table, nodes: Sequence[Node]) -> dict[str, DataType]:
    """The columns of `table` that any of the nodes reads, by name, in the table's order, with the types to be read.

    A ROW of which only some fields are read has only these. Computed columns are among them.
    """
    scanned = {
        name for node in nodes for scan in scans_of(node) if scan.table.name == table.name for name in scan.columns
    }
    fields: dict[str, set[str] | None] = {}
    for name, field in _reads(table, nodes):
        known = fields.setdefault(name, set())
        if field is None or known is None:
            fields[name] = None
        else:
            known.add(field)
    return {
        column.name: _narrow(column.type, fields.get(column.name)) for column in table.columns if column.name in scanned
    }


def _narrow(whole: DataType, fields: set[str] | None) -> DataType:
    if whole.kind is not TypeKind.ROW or not fields:
        return whole
    return replace(whole, fields=tuple(field for field in whole.fields if field.name in fields))


def _reads(table: Table, nodes: Iterable[Node]) -> Iterator[_Read]:
    for node in nodes:
        scan, read = _beneath(node)
        if scan is None:
            yield from _reads(table, inputs_of(node))
        elif scan.table.name == table.name:
            yield from (_in_expressions(read) if read is not None else ((name, None) for name in scan.columns))
            yield from _in_computed(scan)


def _beneath(node: Node) -> tuple[Scan | None, list[Expression] | None]:
    """The scan right beneath a node, and the expressions by which alone its columns are read; None: in whole."""
    read = [value for _, value in node.columns] if isinstance(node, Project) else None
    below = node.input if isinstance(node, Project) else node
    while isinstance(below, Filter):
        if read is not None:
            read.append(below.predicate)
        below = below.input
    return (below, read) if isinstance(below, Scan) else (None, None)


def _in_computed(scan: Scan) -> Iterator[_Read]:
    wanted = set(scan.columns)
    for column in scan.table.columns:
        if isinstance(column, ComputedColumn) and column.name in wanted:
            yield from _in_expressions([column.expression])
    watermark = scan.table.watermark
    if watermark is not None and watermark.expression is not None:
        yield from _in_expressions([watermark.expression])


def _in_expressions(expressions: Iterable[Expression]) -> Iterator[_Read]:
    for expression in expressions:
        match expression:
            case Call(function="FIELD", arguments=(Column(name=name), Literal(value=str(field)))):
                yield name, field
            case Column(name=name):
                yield name, None
            case Call(arguments=arguments):
                yield from _in_expressions(arguments)
            case Case(branches=branches, otherwise=otherwise):
                yield from _in_expressions(part for branch in branches for part in branch)
                yield from _in_expressions([] if otherwise is None else [otherwise])
            case Cast(operand=operand):
                yield from _in_expressions([operand])
            case Literal():
                pass


def follows_wall_clock(node: Node) -> bool:
    """Whether something in the node's tree closes windows by processing time, or tells them early or late by it."""
    return _follows(node) or any(map(follows_wall_clock, inputs_of(node)))


def _follows(node: Node) -> bool:
    match node:
        case WindowAggregate(emit=emit) if emit is not None:
            return True
        case WindowAggregate(window=window) | WindowRows(window=window) if not isinstance(window, Attached):
            time = node.input.schema.find(window.time_column)
            return time is not None and time.proctime
        case _:
            return False
