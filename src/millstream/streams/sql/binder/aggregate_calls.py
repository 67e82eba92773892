"""Binds aggregate calls: arguments, DISTINCT, FILTER and inner order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.streams.functions.registry import AGGREGATES, FunctionSpec
from millstream.streams.functions.user_functions.user import UserFunction
from millstream.streams.plan.aggregates import Aggregate, AggregateCall, WindowAggregate
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import Call, Case, Expression, Literal, conjunction
from millstream.streams.plan.types import BOOLEAN, DataType
from millstream.streams.plan.windows import Cumulate, Hop, Session
from millstream.streams.sql.binder.scalars import bind_condition, bind_term, convert_type
from millstream.streams.sql.binder.scopes import Scope
from millstream.streams.sql.syntax.expressions import CallTerm, RowTerm
from millstream.streams.sql.syntax.script import Script

__all__ = ["bind_aggregate", "check_users_aggregates"]


def bind_aggregate(term: CallTerm, scope: Scope, *, spec: FunctionSpec | None = None) -> AggregateCall:
    """The aggregate that the call names, or the function of `spec`. Raises SqlError."""
    user = None if spec is not None or term.name in AGGREGATES else scope.script.aggregate(term.name)
    found = spec or user or AGGREGATES[term.name]
    script = scope.script
    inside = replace(scope, place="an aggregate")
    condition = None if term.filter is None else bind_condition(term.filter, inside)
    if term.star:
        if term.name != "COUNT":
            raise script.error("SQL_SYNTAX", f"{term.name}(*) is not possible; only COUNT(*).", term.span)
        return AggregateCall("COUNT", None, found.type_rule(()), filter=condition)
    if term.order:
        message = f"ORDER BY inside of {term.name} is not supported: values stand in the order in which rows come."
        remedy = "MIN_BY, MAX_BY, FIRST_VALUE and LAST_VALUE choose one value by an order."
        raise script.error("SQL_UNSUPPORTED", message, term.order[0].span, remedy=remedy)
    arguments = [bind_term(argument, inside) for argument in term.arguments]
    if term.name == "COUNT" and len(arguments) > 1:
        arguments = [_together(term, arguments, inside)]
    if len(arguments) < max(found.min_args, 1 if spec is None and user is None else 0) or (
        found.max_args is not None and len(arguments) > found.max_args
    ):
        message = f"{term.name} does not take {len(arguments)} arguments, as in {found.example}."
        raise script.error("SQL_UNKNOWN_FUNCTION", message, term.span)
    result, arguments = _check_types(found, arguments, term, scope)
    first = arguments[0] if arguments else None
    more = tuple(arguments[1:])
    return AggregateCall(found.call_name, first, result, term.distinct, condition, more)


def _together(term: CallTerm, arguments: list[Expression], scope: Scope) -> Expression:
    """Several values that COUNT counts as one, which is NULL where any of them is."""
    row = bind_term(RowTerm(term.arguments, term.span), scope)
    nulls = conjunction([Call("IS NOT NULL", (argument,), BOOLEAN) for argument in arguments])
    assert nulls is not None
    return Case(((nulls, row),), None, row.type.as_nullable())


def check_users_aggregates(terms: Sequence[CallTerm], node: Aggregate | WindowAggregate, script: Script) -> None:
    """Whether the classes of users' aggregates have the methods that the node asks for. Raises SqlError."""
    window = node.window if isinstance(node, WindowAggregate) else None
    changes = changelog_of(node.input) is ChangelogMode.RETRACT
    for term in terms:
        user = None if term.name in AGGREGATES else script.aggregate(term.name)
        if user is None:
            continue
        if changes and not user.retracts:
            message = f"{term.name} cannot take rows back, but the rows that it is over change."
            remedy = f"Give {user.path} a method retract, or aggregate rows that are only appended."
            raise script.error("SQL_UNSUPPORTED", message, term.span, remedy=remedy)
        if isinstance(window, Hop | Cumulate | Session) and not user.merges:
            message = f"{term.name} cannot be put together of parts, which {type(window).__name__.upper()} windows do."
            raise script.error("SQL_UNSUPPORTED", message, term.span, remedy=f"Give {user.path} a method merge.")


def _check_types(
    spec: FunctionSpec | UserFunction, arguments: list[Expression], term: CallTerm, scope: Scope
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
    return result, [have if new is None else convert_type(have, new) for have, new in pairs]
