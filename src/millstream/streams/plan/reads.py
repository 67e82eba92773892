"""What a plan reads of its tables: columns, and of a ROW only the fields that are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, inputs_of, scans_of
from millstream.streams.plan.tables import ComputedColumn, Table
from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["columns_read"]

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
