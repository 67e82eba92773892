"""WHERE bound, with the sub-queries in it: IN and EXISTS become joins, a sub-query as a value becomes a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millstream.streams.plan.expressions import Call, Column, Expression
from millstream.streams.plan.joins import Join, JoinKind
from millstream.streams.plan.nodes import Aggregate, Filter, Node, Project, Values
from millstream.streams.plan.ordering import Sort
from millstream.streams.sql.correlated import SingleValue, correlated_value, equation
from millstream.streams.sql.from_clause import bind_source
from millstream.streams.sql.join_conditions import conjuncts_of, filtered, joined
from millstream.streams.sql.query_context import QueryContext
from millstream.streams.sql.query_syntax import QueryTree, Select
from millstream.streams.sql.relations import Relation, as_column, renamed, renamed_apart, scope_of
from millstream.streams.sql.scalars import bind_condition, bind_term
from millstream.streams.sql.scopes import Scope, column_of_name, identity
from millstream.streams.sql.script import Script
from millstream.streams.sql.syntax import (
    CallTerm,
    ExistsTerm,
    InQueryTerm,
    Operation,
    QueryTerm,
    RowTerm,
    StarTerm,
    Term,
)
from millstream.streams.sql.terms import conjuncts_of_term, has_aggregates, names_of, queries_of

__all__ = ["apply_where", "with_values"]


def apply_where(where: Term | None, relation: Relation, context: QueryContext) -> Relation:
    """The rows of the relation that fit the condition. Raises SqlError."""
    if where is None:
        return relation
    terms = list(conjuncts_of_term(where))
    plain = [term for term in terms if not any(True for _ in queries_of(term))]
    conditions = [_condition(term, relation, context) for term in plain]
    relation = relation.over(filtered(relation.node, [part for of in conditions for part in conjuncts_of(of)]))
    for term in terms:
        if term not in plain:
            relation = _queried(term, relation, context)
    return relation


def _condition(term: Term, relation: Relation, context: QueryContext) -> Expression:
    return bind_condition(term, scope_of(relation, context.script, "WHERE", context.outer))


def _queried(term: Term, relation: Relation, context: QueryContext) -> Relation:
    """The rows that fit one condition with a sub-query in it."""
    inside, kind = term, JoinKind.SEMI
    while isinstance(inside, Operation) and inside.operator == "NOT":
        inside = inside.operands[0]
        kind = JoinKind.ANTI if kind is JoinKind.SEMI else JoinKind.SEMI
    if isinstance(inside, ExistsTerm):
        return _semi_join(relation, inside.query, (), kind, context)
    if isinstance(inside, InQueryTerm):
        operand = inside.operand
        operands = operand.values if isinstance(operand, RowTerm) else (operand,)
        return _semi_join(relation, inside.query, operands, kind, context)
    return _compared(term, relation, context)


def _compared(term: Term, relation: Relation, context: QueryContext) -> Relation:
    """A comparison with the one value of a sub-query: an inner join, by a key where it is an equality."""
    replaced: dict[object, Expression] = {}
    nodes: list[Node] = []
    below = relation.node
    outer = scope_of(relation, context.script, "WHERE", context.outer)
    for query in queries_of(term):
        if not isinstance(query, QueryTerm):
            message = "IN and EXISTS with a sub-query stand in WHERE among conditions joined by AND."
            raise context.script.error("SQL_UNSUPPORTED", message, query.span)
        taken = {name for node in (below, *nodes) for name in node.schema.names}
        found = _single(query, taken, outer, context)
        if found.conditions:
            below = joined(below, found.node, JoinKind.LEFT, found.conditions)
        else:
            nodes.append(found.node)
        replaced[identity(query)] = found.value
    conditions = conjuncts_of(bind_condition(term, replace(outer, replaced=replaced)))
    if not nodes:
        return relation.over(filtered(below, list(conditions)))
    for number, node in enumerate(nodes):
        below = joined(below, node, JoinKind.INNER, conditions if number == len(nodes) - 1 else [])
    return relation.over(below)


def with_values(terms: tuple[Term, ...], node: Node, scope: Scope, context: QueryContext) -> tuple[Node, Scope]:
    """The node with the value of each sub-query in the terms as a column, and the scope that knows them."""
    replaced = dict(scope.replaced)
    for query in (query for term in terms for query in queries_of(term)):
        if isinstance(query, QueryTerm) and identity(query) not in replaced:
            found = _single(query, set(node.schema.names), scope, context)
            node = joined(node, found.node, JoinKind.LEFT, found.conditions)
            value = found.value
            replaced[identity(query)] = (
                replace(value, type=value.type.as_nullable()) if isinstance(value, Column) else value
            )
    return node, replace(scope, replaced=replaced)


def _single(query: QueryTerm, taken: set[str], outer: Scope, context: QueryContext) -> SingleValue:
    """The rows of a sub-query that gives one value, under a name that is not taken."""
    correlated = correlated_value(query, outer, taken, context)
    if correlated is not None:
        return correlated
    node = context.bind(query.query, replace(context, hints=(), outer=None))
    script = context.script
    if len(node.schema.fields) != 1:
        message = f"A sub-query as a value has one column, this one has {len(node.schema.fields)}."
        raise script.error("SQL_TYPE", message, query.span)
    if not _gives_one_row(node):
        message = "A sub-query as a value must give one row, and this one may give several."
        remedy = "Use an aggregate without GROUP BY, such as MAX(x), or IN (SELECT ...)."
        raise script.error("SQL_UNSUPPORTED", message, query.span, remedy=remedy)
    node, _ = renamed_apart(node, taken)
    (field,) = node.schema.fields
    return SingleValue(node, Column(field.name, field.type))


def _gives_one_row(node: Node) -> bool:
    match node:
        case Project() | Filter():
            return _gives_one_row(node.input)
        case Aggregate(keys=keys):
            return not keys
        case Values(rows=rows):
            return len(rows) == 1
        case Sort(limit=limit):
            return limit == 1
        case _:
            return False


@dataclass(frozen=True)
class _Inner:
    """A bound sub-query: its rows, conditions over its and the outer columns, and its own columns."""

    node: Node
    conditions: list[Expression]
    values: tuple[Expression, ...]


def _semi_join(
    relation: Relation, query: QueryTree, operands: tuple[Term, ...], kind: JoinKind, context: QueryContext
) -> Relation:
    script = context.script
    outer = scope_of(relation, script, "WHERE", context.outer)
    mine = [bind_term(operand, outer) for operand in operands]
    inner = _inner(relation, query, outer, context, has_operands=bool(operands))
    if operands and len(inner.values) != len(operands):
        message = f"The sub-query of IN has {len(inner.values)} columns, but {len(operands)} are compared."
        raise script.error("SQL_TYPE", message, query.span)
    pairs = [equation(left, right, query.span, outer) for left, right in zip(mine, inner.values, strict=False)]
    nullable = any(value.type.nullable for value in (*mine, *inner.values))
    null_aware = kind is JoinKind.ANTI and bool(operands) and nullable
    if null_aware and inner.conditions:
        message = "NOT IN with a sub-query that names columns of the query around it is not supported."
        raise script.error("SQL_UNSUPPORTED", message, query.span, remedy="Use NOT EXISTS.")
    if null_aware:
        return relation.over(_not_in(relation.node, inner.node, pairs))
    return relation.over(joined(relation.node, inner.node, kind, [*inner.conditions, *pairs]))


def _not_in(left: Node, right: Node, pairs: list[Expression]) -> Join:
    """The left rows of which it is known that they equal no right row; each pair is an equation of both sides."""
    keys: dict[tuple[str, str], None] = {}
    for pair in pairs:
        assert isinstance(pair, Call)
        left, mine = as_column(left, pair.arguments[0], "left_key")
        right, other = as_column(right, pair.arguments[1], "right_key")
        keys[mine, other] = None
    return Join(left, right, JoinKind.ANTI, tuple(keys), null_aware=True)


def _inner(relation: Relation, query: QueryTree, outer: Scope, context: QueryContext, *, has_operands: bool) -> _Inner:
    inside = replace(context, hints=(), outer=None)
    taken = relation.node.schema.names
    if not isinstance(query, Select) or query.source is None or not _is_plain(query, context.script):
        node, _ = renamed_apart(context.bind(query, inside), taken)
        return _Inner(node, [], tuple(Column(of.name, of.type) for of in node.schema.fields))
    source = bind_source(query.source, inside)
    here = scope_of(source, context.script, "WHERE")
    terms = [] if query.where is None else list(conjuncts_of_term(query.where))
    own = [term for term in terms if all(column_of_name(name, here) is not None for name in names_of(term))]
    for term in own:
        source = apply_where(term, source, inside)
    node, new = renamed_apart(source.node, taken)
    parts = tuple(
        replace(part, columns=tuple((name, renamed(value, new)) for name, value in part.columns))
        for part in source.parts
    )
    both = Scope(context.script, node.schema, place="WHERE", parts=parts, outer=outer)
    bound = [bind_condition(term, both) for term in terms if term not in own]
    values: tuple[Expression, ...] = ()
    if has_operands:
        values = tuple(value for item in query.items for value in _values(item.value, both))
    return _Inner(node, [part for condition in bound for part in conjuncts_of(condition)], values)


def _values(term: Term, scope: Scope) -> Iterator[Expression]:
    if isinstance(term, StarTerm):
        for part in scope.sources:
            if not term.qualifier or part.is_called(term.qualifier):
                yield from (value for name, value in part.columns if name not in part.hidden)
        return
    yield bind_term(term, replace(scope, place="SELECT"))


def _is_plain(query: Select, script: Script) -> bool:
    """Whether the query only filters and chooses columns, so that it may name columns of the query around it."""
    computes = any(has_aggregates(item.value, script) or _ranks(item.value) for item in query.items)
    return not (query.groups or query.having is not None or query.distinct or computes)


def _ranks(term: Term) -> bool:
    return isinstance(term, CallTerm) and term.over is not None
