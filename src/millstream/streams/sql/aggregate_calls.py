"""Calls of aggregates bound: their arguments, DISTINCT, FILTER and the order inside."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.functions.registry import AGGREGATES, FunctionSpec
from millstream.streams.plan.expressions import Column, Expression, Literal
from millstream.streams.plan.nodes import AggregateCall
from millstream.streams.plan.ordering import OrderKey
from millstream.streams.plan.types import DataType
from millstream.streams.sql.scalars import bind_condition, bind_term, converted
from millstream.streams.sql.scopes import Scope
from millstream.streams.sql.syntax import CallTerm

__all__ = ["bind_aggregate"]


def bind_aggregate(term: CallTerm, scope: Scope, *, spec: FunctionSpec | None = None) -> AggregateCall:
    """The aggregate that the call names, or the function of `spec`. Raises SqlError."""
    found = spec or AGGREGATES[term.name]
    script = scope.script
    inside = replace(scope, place="an aggregate")
    condition = None if term.filter is None else bind_condition(term.filter, inside)
    if term.star:
        if term.name != "COUNT":
            raise script.error("SQL_SYNTAX", f"{term.name}(*) is not possible; only COUNT(*).", term.span)
        return AggregateCall("COUNT", None, found.type_rule(()), filter=condition)
    arguments = [bind_term(argument, inside) for argument in term.arguments]
    if len(arguments) < max(found.min_args, 1 if spec is None else 0) or (
        found.max_args is not None and len(arguments) > found.max_args
    ):
        message = f"{term.name} does not take {len(arguments)} arguments, as in {found.example}."
        raise script.error("SQL_UNKNOWN_FUNCTION", message, term.span)
    result, arguments = _typed(found, arguments, term, scope)
    first = arguments[0] if arguments else None
    more = tuple(arguments[1:])
    return AggregateCall(term.name, first, result, term.distinct, condition, more, _order(term, inside))


def _typed(
    spec: FunctionSpec, arguments: list[Expression], term: CallTerm, scope: Scope
) -> tuple[DataType, list[Expression]]:
    """The type of the result and the arguments in the types that are wanted; SQL_TYPE where they do not fit."""
    types = [argument.type for argument in arguments]
    literals = [argument.value if isinstance(argument, Literal) else None for argument in arguments]
    try:
        result, wanted = spec.type_rule(types, literals), spec.wanted_types(types)
    except TypeError as error:
        given = ", ".join(map(str, types))
        raise scope.script.error("SQL_TYPE", f"{term.name} wants {error}, not {given}.", term.span) from None
    pairs = zip(arguments, wanted, strict=True)
    return result, [have if new is None else converted(have, new) for have, new in pairs]


def _order(term: CallTerm, scope: Scope) -> tuple[OrderKey, ...]:
    keys = []
    for item in term.order:
        value = bind_term(item.value, scope)
        if not isinstance(value, Column):
            message = f"ORDER BY inside of {term.name} takes columns."
            raise scope.script.error("SQL_UNSUPPORTED", message, item.span, remedy="Compute them in a sub-query.")
        keys.append(OrderKey(value.name, item.ascending, item.nulls_first))
    return tuple(keys)
