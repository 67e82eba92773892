"""Scopes of names: the columns of FROM by qualifier, and those that grouping keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.streams.errors import SqlError
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.types import STRING, Schema
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.script import Script, did_you_mean

__all__ = ["GroupWindow", "Scope", "ScopePart", "bind_name", "column_of_name"]


_MAX_QUALIFIER = 3
"""Catalog, database and table."""


@dataclass(frozen=True)
class ScopePart:
    """One source of FROM: its columns by the names that a query may use behind `qualifier` or alone.

    `hidden` ones need the qualifier and are not among those of `*`: NATURAL and USING give them once for both sides.
    `inner` are the qualified names that a sub-query without an alias gave its columns: qualifier, name, column.
    `path` is the whole name of a table that has no other alias: catalog and database may stand before the qualifier.
    """

    qualifier: str | None
    columns: tuple[tuple[str, Expression], ...]
    hidden: frozenset[str] = frozenset()
    inner: tuple[tuple[str, str, str], ...] = ()
    path: tuple[str, ...] = ()

    def is_called(self, names: tuple[str, ...]) -> bool:
        """Whether the names are the qualifier, perhaps with its database and catalog in front."""
        return names == (self.qualifier,) or (len(names) > 1 and names == self.path[-len(names) :])

    def find(self, name: str) -> Expression | None:
        return next((value for known, value in self.columns if known == name), None)


@dataclass(frozen=True)
class GroupWindow:
    """The window of GROUP BY TUMBLE(...) and its kin: what it is called with, and the columns of its bounds."""

    key: object
    columns: Mapping[str, Column]


@dataclass(frozen=True)
class Scope:
    """What an expression may name: the columns of a schema, perhaps behind `qualifiers`, or those of the `parts`.

    `replaced` gives bound expressions for whole terms (by `identity`), as OVER and aggregates need them. `in_group`
    forbids columns that are not among `keys`, which gives what stands for an expression above the grouping. `outer`
    is looked at for names that are not found. `place` says where the expression stands, for errors.
    """

    script: Script
    schema: Schema
    qualifiers: tuple[str, ...] = ()
    replaced: Mapping[object, Expression] = field(default_factory=dict)
    in_group: bool = False
    place: str = "an expression"
    parts: tuple[ScopePart, ...] = ()
    keys: Mapping[Expression, Expression] = field(default_factory=dict)
    window: GroupWindow | None = None
    outer: Scope | None = None
    grouping: Callable[[Sequence[Expression]], Expression | None] | None = None

    @property
    def sources(self) -> tuple[ScopePart, ...]:
        """The parts; those of a plain schema are the schema itself under each qualifier."""
        if self.parts:
            return self.parts
        columns = tuple((of.name, Column(of.name, of.type)) for of in self.schema.fields)
        return tuple(ScopePart(qualifier, columns) for qualifier in self.qualifiers or (None,))


def column_of_name(term: NameTerm, scope: Scope) -> tuple[Expression, tuple[str, ...]] | None:
    """The column that the first parts of a name mean, and the parts behind it, which name fields of a ROW.

    None if there is no such column here; outer scopes are not looked at. Raises SQL_UNKNOWN_COLUMN if several fit.
    """
    first, *rest = term.parts
    for length in range(1, min(len(rest), _MAX_QUALIFIER) + 1):
        column, *fields = term.parts[length:]
        for part in scope.sources:
            found = part.find(column) if part.is_called(term.parts[:length]) else None
            if found is not None:
                return found, tuple(fields)
    if rest:
        for part in scope.sources:
            known = next((column for *name, column in part.inner if name == [first, rest[0]]), None)
            if known is not None and (found := part.find(known)) is not None:
                return found, tuple(rest[1:])
    visible = [
        (part, found) for part in scope.sources if first not in part.hidden and (found := part.find(first)) is not None
    ]
    if len({found for _, found in visible}) > 1:
        where = " and ".join(f"{part.qualifier}.{first}" if part.qualifier else first for part, _ in visible)
        message = f'"{first}" can be {where}.'
        remedy = "Write it behind its table's name or alias."
        raise scope.script.error("SQL_UNKNOWN_COLUMN", message, term.span, remedy=remedy)
    return (visible[0][1], tuple(rest)) if visible else None


def bind_name(term: NameTerm, scope: Scope) -> Expression:
    """The column, or field of a ROW column, that the name means. Raises SQL_UNKNOWN_COLUMN."""
    found = column_of_name(term, scope)
    if found is None:
        if scope.outer is not None and _resolves(term, scope.outer):
            return bind_name(term, scope.outer)
        raise _unknown_column(term, scope)
    bound, rest = found
    if scope.in_group:
        return _above_grouping(bound, rest, term, scope)
    for name in rest:
        bound = _field(bound, name, term, scope)
    return bound


def _above_grouping(bound: Expression, rest: tuple[str, ...], term: NameTerm, scope: Scope) -> Expression:
    """What stands for the column, or for the field of it that is grouped by, above the grouping."""
    above = scope.keys.get(bound)
    for name in rest:
        bound = _field(bound, name, term, scope)
        above = scope.keys.get(bound) if above is None else _field(above, name, term, scope)
    if above is None:
        message = f'The column "{".".join(term.parts)}" is neither grouped by nor inside of an aggregate.'
        raise scope.script.error("SQL_SYNTAX", message, term.span, remedy="Add it to GROUP BY or use MIN or MAX.")
    return above


def _resolves(term: NameTerm, scope: Scope) -> bool:
    if column_of_name(term, scope) is not None:
        return True
    return scope.outer is not None and _resolves(term, scope.outer)


def _field(bound: Expression, name: str, term: NameTerm, scope: Scope) -> Expression:
    member = next((member for member in bound.type.fields if member.name == name), None)
    if member is None:
        hint = did_you_mean(name, [member.name for member in bound.type.fields])
        message = f'{bound} ({bound.type}) has no field "{name}".'
        raise scope.script.error("SQL_UNKNOWN_COLUMN", message, term.span, remedy=hint or None)
    return Call("FIELD", (bound, Literal(name, STRING)), member.type.as_nullable())


def _unknown_column(term: NameTerm, scope: Scope) -> SqlError:
    name = term.parts[0]
    for length in range(min(len(term.parts) - 1, _MAX_QUALIFIER), 0, -1):
        part = next((part for part in scope.sources if part.is_called(term.parts[:length])), None)
        if part is not None:
            missing = term.parts[length]
            message = f'"{".".join(term.parts[:length])}" has no column "{missing}".'
            hint = did_you_mean(missing, [column for column, _ in part.columns])
            return scope.script.error("SQL_UNKNOWN_COLUMN", message, term.span, remedy=hint or None)
    known = list(dict.fromkeys(column for part in scope.sources for column, _ in part.columns))
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    qualifiers = [part.qualifier for part in scope.sources if part.qualifier] if len(term.parts) > 1 else []
    hint = did_you_mean(name, [*known, *qualifiers])
    return scope.script.error(
        "SQL_UNKNOWN_COLUMN", f'There is no column "{name}" in ({shown}).', term.span, remedy=hint or None
    )
