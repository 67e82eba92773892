"""Binds LATERAL TABLE(f(x)) and UNNEST(x)."""

from __future__ import annotations

from millstream.streams.plan.expressions import Call, Column, Expression, conjuncts_of
from millstream.streams.plan.joins import Correlate, JoinKind
from millstream.streams.plan.types import INT, DataType, Field, TypeKind
from millstream.streams.sql.binder.join_conditions import filter_rows
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.binder.relations import Relation, fresh_name, scope_of
from millstream.streams.sql.binder.scalars import bind_condition, bind_term
from millstream.streams.sql.binder.scopes import ScopePart
from millstream.streams.sql.syntax.expressions import Term
from millstream.streams.sql.syntax.queries import FunctionSource

__all__ = ["join_table_function"]


def join_table_function(
    left: Relation, source: FunctionSource, kind: JoinKind, on: Term | None, context: QueryContext
) -> Relation:
    """The rows of `left`, each with what the function makes of it. LEFT is joined ON TRUE."""
    script = context.script
    if kind not in (JoinKind.INNER, JoinKind.LEFT):
        message = f"{kind.value} JOIN with a table function is not supported."
        raise script.error("SQL_UNSUPPORTED", message, source.span, remedy="Use LEFT JOIN ... ON TRUE or CROSS JOIN.")
    call = _call(left, source, context)
    fields = _fields(call, source, context)
    used_names = set(left.node.schema.names)
    nullable = kind is JoinKind.LEFT
    names = tuple(
        Field(fresh_name(of.name, used_names), of.type.as_nullable() if nullable else of.type) for of in fields
    )
    node = Correlate(left.node, call, names, kind)
    shown = zip((of.name for of in fields), names, strict=True)
    part = ScopePart(source.alias.name, tuple((name, Column(of.name, of.type)) for name, of in shown))
    relation = Relation(node, (*left.parts, part))
    if on is None:
        return relation
    conditions = conjuncts_of(bind_condition(on, scope_of(relation, script, "ON")))
    if conditions and kind is JoinKind.LEFT:
        message = "LEFT JOIN with a table function takes ON TRUE only."
        raise script.error("SQL_UNSUPPORTED", message, on.span, remedy="Move the condition into WHERE.")
    return relation.over(filter_rows(node, conditions))


def _call(left: Relation, source: FunctionSource, context: QueryContext) -> Call:
    """The call of the plan, of type ARRAY."""
    scope = scope_of(left, context.script, "a table function")
    if source.call.name != "UNNEST":
        bound = bind_term(source.call, scope)
        if not isinstance(bound, Call) or bound.type.kind is not TypeKind.ARRAY:
            message = f"{source.call.name} is no table function: it gives {bound.type}, not an ARRAY."
            raise context.script.error("SQL_TYPE", message, source.call.span)
        return bound
    argument = bind_term(source.call.arguments[0], scope)
    element = _element(argument, source, context)
    if not source.with_ordinality:
        return Call("UNNEST", (argument,), DataType(TypeKind.ARRAY, elements=(element,)))
    inside = element.fields if element.kind is TypeKind.ROW else (Field("EXPR$0", element),)
    row = DataType(TypeKind.ROW, fields=(*inside, Field("ORDINALITY", INT.as_nullable(False))))
    return Call("UNNEST_WITH_ORDINALITY", (argument,), DataType(TypeKind.ARRAY, elements=(row,)))


def _element(argument: Expression, source: FunctionSource, context: QueryContext) -> DataType:
    if argument.type.kind is TypeKind.ARRAY:
        return argument.type.elements[0]
    if argument.type.kind is TypeKind.MAP:
        key, value = argument.type.elements
        return DataType(TypeKind.ROW, fields=(Field("KEY", key), Field("VALUE", value)))
    message = f"UNNEST takes an ARRAY or a MAP, but this is {argument.type}."
    raise context.script.error("SQL_TYPE", message, source.call.arguments[0].span)


def _fields(call: Call, source: FunctionSource, context: QueryContext) -> tuple[Field, ...]:
    """The columns of the rows that are made, under the names of the alias."""
    element = call.type.elements[0]
    fields = element.fields if element.kind is TypeKind.ROW else (Field("EXPR$0", element),)
    names = source.alias.columns
    if names and len(names) != len(fields):
        message = f"The alias names {len(names)} columns, but {source.call.name} makes {len(fields)}."
        raise context.script.error("SQL_SYNTAX", message, source.span)
    return tuple(Field(name, of.type) for name, of in zip(names or (of.name for of in fields), fields, strict=True))
