"""Binds the items of SELECT: expressions with names, and stars."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.types import STRING
from millstream.streams.sql.binder.scalars import bind_term
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.syntax.expressions import NameTerm, StarTerm
from millstream.streams.sql.syntax.queries import SelectItem
from millstream.streams.sql.syntax.script import did_you_mean

__all__ = ["all_columns", "item_columns"]


def item_columns(item: SelectItem, number: int, scope: Scope) -> Iterator[tuple[str, Expression]]:
    """The columns that an item gives, by name; a star gives several. Raises SqlError."""
    term = item.value
    if isinstance(term, StarTerm):
        if scope.in_group:
            raise scope.script.error("SQL_SYNTAX", "SELECT * is not possible with GROUP BY.", term.span)
        yield from all_columns(term, scope)
        return
    value = bind_term(term, scope)
    if item.alias is not None:
        yield item.alias, value
    elif isinstance(term, NameTerm):
        yield term.parts[-1], value
    elif isinstance(value, Column) and value.name in ("window_start", "window_end", "window_time"):
        yield value.name, value
    else:
        yield f"EXPR${number}", value


def all_columns(term: StarTerm, scope: Scope) -> Iterator[tuple[str, Expression]]:
    """The columns of `*`, of a table's `t.*`, or the fields of a ROW column."""
    if not term.qualifier:
        for part in scope.sources:
            yield from ((name, value) for name, value in part.columns if name not in part.hidden)
        return
    for part in scope.sources:
        if part.is_called(term.qualifier):
            yield from part.columns
            return
    if any(part.find(term.qualifier[0]) is not None for part in scope.sources) or len(term.qualifier) > 1:
        row = bind_term(NameTerm(term.qualifier, term.span), scope)
        if not row.type.fields:
            message = f"{'.'.join(term.qualifier)} is {row.type}, which has no fields."
            raise scope.script.error("SQL_TYPE", message, term.span)
        for field in row.type.fields:
            yield field.name, Call("FIELD", (row, Literal(field.name, STRING)), field.type.as_nullable())
        return
    name = ".".join(term.qualifier)
    qualifiers = [part.qualifier for part in scope.sources if part.qualifier]
    message = f'There is no table or alias "{name}" in FROM.'
    known = f"Here is {', '.join(qualifiers)}." if qualifiers else "Give the sub-query an alias."
    raise scope.script.error(
        "SQL_UNKNOWN_TABLE", message, term.span, remedy=f"{did_you_mean(name, qualifiers)} {known}".strip()
    )
