"""The bound form of FROM: rows, and the names that refer to their parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal, is_proctime
from millstream.streams.plan.nodes import Node, Project
from millstream.streams.plan.types import Field, Schema
from millstream.streams.sql.binder.scopes import Scope, ScopePart
from millstream.streams.sql.syntax.script import Script

__all__ = [
    "Relation",
    "add_columns",
    "as_column",
    "as_columns",
    "fresh_name",
    "project",
    "rename_apart",
    "rename_columns",
    "scope_of",
]


@dataclass(frozen=True)
class Relation:
    """Rows with their parts, one for each table of FROM. Columns of `node` that no part shows are hidden."""

    node: Node
    parts: tuple[ScopePart, ...]

    def over(self, node: Node) -> Relation:
        """The same parts over another node that has all their columns, with that node's types."""
        return Relation(node, tuple(_retype(part, node.schema) for part in self.parts))


def scope_of(relation: Relation, script: Script, place: str, outer: Scope | None = None) -> Scope:
    """What an expression over the relation may name."""
    return Scope(script, relation.node.schema, place=place, parts=relation.parts, outer=outer)


def fresh_name(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken already; it is taken from then on."""
    found = next(f"{name}{suffix}" for suffix in ("", *range(len(taken) + 1)) if f"{name}{suffix}" not in taken)
    taken.add(found)
    return found


def project(node: Node, columns: Iterable[tuple[str, Expression]]) -> Project:
    """The expressions over the node; plain columns stay the time attributes that they are."""
    listed = tuple(columns)
    fields: dict[str, Field] = {}
    for name, value in listed:
        field = node.schema.find(value.name) if isinstance(value, Column) else None
        if field is not None:
            fields[name] = field
    rowtime = frozenset(name for name, field in fields.items() if field.rowtime)
    clocks = frozenset(name for name, value in listed if is_proctime(value))
    return Project(node, listed, rowtime, clocks | frozenset(name for name, field in fields.items() if field.proctime))


def add_columns(node: Node, added: Sequence[tuple[str, Expression]]) -> Node:
    """The node with computed columns behind its own."""
    if not added:
        return node
    return project(node, (*((field.name, Column(field.name, field.type)) for field in node.schema.fields), *added))


def as_columns(
    node: Node, values: Sequence[Expression], name: str, apart: Collection[str] = ()
) -> tuple[Node, tuple[str, ...]]:
    """The node with a column for each value, those that are columns already as they are, and their names.

    No new column is called like one of `apart`, as those of a join's other side.
    """
    used_names = {*node.schema.names, *apart}
    names: list[str] = []
    added: dict[Expression, str] = {}
    for value in values:
        if isinstance(value, Column) and value.name in node.schema.names:
            names.append(value.name)
            continue
        if value not in added:
            added[value] = fresh_name(name, used_names)
        names.append(added[value])
    return add_columns(node, [(of, value) for value, of in added.items()]), tuple(names)


def as_column(node: Node, value: Expression, name: str, apart: Collection[str] = ()) -> tuple[Node, str]:
    """The node with a column for the value, and its name; see `as_columns`."""
    extended_node, (found,) = as_columns(node, (value,), name, apart)
    return extended_node, found


def rename_apart(node: Node, taken: Collection[str]) -> tuple[Node, dict[str, str]]:
    """The node with none of its columns called like one of `taken`, and the new name of each old one."""
    used = {*taken, *node.schema.names}
    new = {name: fresh_name(name, used) if name in taken else name for name in node.schema.names}
    if all(old == name for old, name in new.items()):
        return node, new
    if isinstance(node, Project):
        return project(node.input, ((new[name], value) for name, value in node.columns)), new
    return project(node, ((new[of.name], Column(of.name, of.type)) for of in node.schema.fields)), new


def rename_columns(expression: Expression, names: dict[str, str]) -> Expression:
    """The expression over columns with other names."""
    match expression:
        case Column(name=name):
            return replace(expression, name=names.get(name, name))
        case Call(arguments=arguments):
            return replace(expression, arguments=tuple(rename_columns(argument, names) for argument in arguments))
        case Case(branches=branches, otherwise=otherwise):
            pairs = tuple(
                (rename_columns(condition, names), rename_columns(result, names)) for condition, result in branches
            )
            return Case(pairs, None if otherwise is None else rename_columns(otherwise, names), expression.type)
        case Cast(operand=operand):
            return replace(expression, operand=rename_columns(operand, names))
        case Literal():
            return expression


def _retype(part: ScopePart, schema: Schema) -> ScopePart:
    """Above a join that keeps rows without a partner, columns of the other side may be NULL."""
    columns = []
    for name, value in part.columns:
        field = schema.find(value.name) if isinstance(value, Column) else None
        columns.append((name, value if field is None else Column(field.name, field.type)))
    return replace(part, columns=tuple(columns))
