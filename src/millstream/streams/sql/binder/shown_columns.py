"""The columns of a query that is shown: intervals as the texts that Flink writes for them."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.plan.expressions import Column, Expression
from millstream.streams.plan.nodes import Node, Project
from millstream.streams.plan.types import STRING, DataType, TypeKind
from millstream.streams.sql.binder.relations import project
from millstream.streams.sql.binder.scalars import converted

__all__ = ["with_written_intervals"]

_INTERVALS = (TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR)


def with_written_intervals(node: Node) -> Node:
    """The node with a STRING for each INTERVAL, also in arrays, maps and rows: `+1-02`, `+1 02:03:04.500`."""
    fields = node.schema.fields
    if all(_written(field.type) == field.type for field in fields):
        return node
    below: Node = node
    columns: tuple[tuple[str, Expression], ...] = tuple((of.name, Column(of.name, of.type)) for of in fields)
    if isinstance(node, Project):
        below, columns = node.input, node.columns
    return project(below, ((name, converted(value, _written(value.type))) for name, value in columns))


def _written(data_type: DataType) -> DataType:
    if data_type.kind in _INTERVALS:
        return STRING.as_nullable(data_type.nullable)
    elements = tuple(map(_written, data_type.elements))
    fields = tuple(replace(field, type=_written(field.type)) for field in data_type.fields)
    return replace(data_type, elements=elements, fields=fields)
