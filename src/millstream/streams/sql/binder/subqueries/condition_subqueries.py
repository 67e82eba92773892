"""Binds sub-queries in WHERE and outer join conditions: IN and EXISTS as joins, scalars as columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from millstream.streams.plan.aggregates import Aggregate
from millstream.streams.plan.expressions import Call, Column, Expression, Literal, conjuncts_of
from millstream.streams.plan.joins import Join, JoinKind, SetKind, SetOperation
from millstream.streams.plan.nodes import Filter, Node, Project, Union, Values
from millstream.streams.plan.ordering import Sort
from millstream.streams.plan.types import Schema
from millstream.streams.sql.binder.from_clause import bind_source
from millstream.streams.sql.binder.join_conditions import filter_rows, join_nodes
from millstream.streams.sql.binder.query_context import QueryContext, SidesWithAnswers
from millstream.streams.sql.binder.relations import Relation, as_column, rename_apart, rename_columns, scope_of
from millstream.streams.sql.binder.scalars import bind_condition, bind_term
from millstream.streams.sql.binder.scopes import Scope, column_of_name
from millstream.streams.sql.binder.select_items import item_columns
from millstream.streams.sql.binder.subqueries.correlated import (
    SingleValue,
    correlate_rows,
    correlated_value,
    equation,
    outer_names_of,
)
from millstream.streams.sql.binder.subqueries.subquery_predicates import bind_subquery_predicate, value_of_one_row
from millstream.streams.sql.syntax.expressions import (
    CallTerm,
    ExistsTerm,
    InQueryTerm,
    Operation,
    QueryTerm,
    QuestionTerm,
    RowTerm,
    Term,
)
from millstream.streams.sql.syntax.queries import GroupingSets, OrderedQuery, QueryTree, Select, query_tree
from millstream.streams.sql.syntax.script import Script
from millstream.streams.sql.syntax.terms import (
    conjunction_of_terms,
    conjuncts_of_term,
    has_aggregates,
    identity,
    names_of,
    queries_of,
)

__all__ = ["apply_where", "is_plain", "sides_of_on", "with_rows_alone", "with_values"]


def apply_where(where: Term | None, relation: Relation, context: QueryContext) -> Relation:
    """The rows of the relation that fit the condition. Raises SqlError."""
    if where is None:
        return relation
    terms = list(conjuncts_of_term(where))
    plain = [term for term in terms if not any(True for _ in queries_of(term))]
    conditions = [_condition(term, relation, context) for term in plain]
    relation = relation.over(filter_rows(relation.node, [part for of in conditions for part in conjuncts_of(of)]))
    for term in terms:
        if term not in plain:
            relation = _bind_query_condition(term, relation, context)
    return relation


def _condition(term: Term, relation: Relation, context: QueryContext) -> Expression:
    return bind_condition(term, scope_of(relation, context.script, "WHERE", context.outer))


def _bind_query_condition(term: Term, relation: Relation, context: QueryContext) -> Relation:
    """The rows that fit one condition with a sub-query in it."""
    inside, kind = term, JoinKind.SEMI
    while isinstance(inside, Operation) and inside.operator == "NOT":
        inside = inside.operands[0]
        kind = JoinKind.ANTI if kind is JoinKind.SEMI else JoinKind.SEMI
    if isinstance(inside, ExistsTerm):
        found = _semi_join(relation, query_tree(inside.query), (), kind, context)
    elif isinstance(inside, InQueryTerm):
        operand = inside.operand
        operands = operand.values if isinstance(operand, RowTerm) else (operand,)
        found = _semi_join(relation, query_tree(inside.query), operands, kind, context)
    else:
        found = None
    return _bind_value_condition(term, relation, context) if found is None else found


def _bind_value_condition(term: Term, relation: Relation, context: QueryContext) -> Relation:
    """A condition with values of sub-queries: an inner join, by a key where it is an equality with the only one."""
    replaced: dict[object, Expression] = {}
    nodes: list[Node] = []
    below = relation.node
    outer = scope_of(relation, context.script, "WHERE", context.outer)
    for query in queries_of(term):
        if isinstance(query, QueryTerm):
            used_names = {name for node in (below, *nodes) for name in node.schema.names}
            found = _single(query, used_names, outer, context)
            if found.conditions:
                below = join_nodes(below, found.node, JoinKind.LEFT, found.conditions)
            else:
                nodes.append(found.node)
            replaced[identity(query)] = found.value
        elif identity(query) not in replaced:
            counts = {name for node in nodes for name in node.schema.names}
            below, value = _join_answer(query, below, counts, outer, context, only_true=_needs_only_truth(term, query))
            replaced[identity(query)] = value
    conditions = conjuncts_of(bind_condition(term, replace(outer, replaced=replaced)))
    if not nodes:
        return relation.over(filter_rows(below, list(conditions)))
    for number, node in enumerate(nodes):
        below = join_nodes(below, node, JoinKind.INNER, conditions if number == len(nodes) - 1 else [])
    return relation.over(below)


def _needs_only_truth(term: Term, query: QuestionTerm) -> bool:
    """Whether it does not matter if the answer is FALSE or UNKNOWN: nothing but AND and OR stand above it."""
    if isinstance(term, Operation) and term.operator in ("AND", "OR"):
        return all(_needs_only_truth(operand, query) for operand in term.operands)
    return term is query or all(inner is not query for inner in queries_of(term))


def with_values(
    terms: tuple[Term | GroupingSets, ...], node: Node, scope: Scope, context: QueryContext
) -> tuple[Node, Scope]:
    """The node with the value of each sub-query in the terms as a column, and the scope that knows them."""
    replaced = dict(scope.replaced)
    for query in queries_of(terms, scope.replaced):
        if identity(query) in replaced:
            continue
        if isinstance(query, QueryTerm):
            node, replaced[identity(query)] = _join_value(query, node, set(), scope, context)
        else:
            node, replaced[identity(query)] = _join_answer(query, node, set(), scope, context)
    return node, replace(scope, replaced=replaced)


def _join_value(
    query: QueryTerm, node: Node, taken: set[str], scope: Scope, context: QueryContext
) -> tuple[Node, Expression]:
    """The node with the value of a sub-query beside its rows, and that value."""
    found = _single(query, {*taken, *node.schema.names}, scope, context)
    value = found.value
    node = join_nodes(node, found.node, JoinKind.LEFT, found.conditions)
    return node, replace(value, type=value.type.as_nullable()) if isinstance(value, Column) else value


def _join_answer(
    query: QuestionTerm,
    node: Node,
    taken: set[str],
    scope: Scope,
    context: QueryContext,
    *,
    only_true: bool = False,
) -> tuple[Node, Expression]:
    """The node with what answers EXISTS or IN beside its rows, and the answer."""
    question = bind_subquery_predicate(query, scope, context, only_true=only_true)
    replaced = dict(question.scope.replaced)
    for part in queries_of(question.term):
        assert isinstance(part, QueryTerm)
        if identity(part) not in replaced:
            node, replaced[identity(part)] = _join_value(part, node, taken, question.scope, context)
    return node, bind_term(question.term, replace(question.scope, replaced=replaced))


def _single(query: QueryTerm, taken: set[str], outer: Scope, context: QueryContext) -> SingleValue:
    """The rows of a sub-query that gives one value, under a name that is not taken."""
    correlated = correlated_value(query, outer, taken, context)
    if correlated is not None:
        return correlated
    node = context.bind(query_tree(query.query), replace(context, hints=(), outer=None))
    if len(node.schema.fields) != 1:
        message = f"A sub-query as a value has one column, this one has {len(node.schema.fields)}."
        raise context.script.error("SQL_TYPE", message, query.span)
    if not _gives_one_row(node):
        node = context.bind(value_of_one_row(query), replace(context, hints=(), outer=None))
    node, _ = rename_apart(node, taken)
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
) -> Relation | None:
    """The rows with a partner in the sub-query, or without; None where one NULL decides by rows around it."""
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
        return None
    if null_aware:
        return relation.over(_not_in(relation.node, inner.node, pairs))
    return relation.over(join_nodes(relation.node, inner.node, kind, [*inner.conditions, *pairs]))


def _not_in(left: Node, right: Node, pairs: list[Expression]) -> Join:
    """The left rows of which it is known that they equal no right row; each pair is an equation of both sides."""
    keys: dict[tuple[str, str], None] = {}
    for pair in pairs:
        assert isinstance(pair, Call)
        left, mine = as_column(left, pair.arguments[0], "left_key", right.schema.names)
        right, other = as_column(right, pair.arguments[1], "right_key", left.schema.names)
        keys[mine, other] = None
    return Join(left, right, JoinKind.ANTI, tuple(keys), null_aware=True)


def _inner(relation: Relation, query: QueryTree, outer: Scope, context: QueryContext, *, has_operands: bool) -> _Inner:
    inside = replace(context, hints=(), outer=None)
    used_names = relation.node.schema.names
    if isinstance(query, OrderedQuery) and not has_operands and query.limit != 0 and not query.offset:
        # Neither an order nor a limit changes whether there is a row.
        query = query.query
    if not isinstance(query, Select) or query.source is None or not is_plain(query, context.script):
        return _bind_grouped(query, outer, used_names, context, has_operands=has_operands)
    source = bind_source(query.source, inside)
    here = scope_of(source, context.script, "WHERE")
    terms = [] if query.where is None else list(conjuncts_of_term(query.where))
    own = [term for term in terms if all(column_of_name(name, here) is not None for name in names_of(term))]
    for term in own:
        source = apply_where(term, source, inside)
    node, new = rename_apart(source.node, used_names)
    parts = tuple(
        replace(part, columns=tuple((name, rename_columns(value, new)) for name, value in part.columns))
        for part in source.parts
    )
    both = Scope(context.script, node.schema, place="WHERE", parts=parts, outer=outer)
    bound = [bind_condition(term, both) for term in terms if term not in own]
    values: tuple[Expression, ...] = ()
    if has_operands:
        listed = (column for item in query.items for column in item_columns(item, 0, replace(both, place="SELECT")))
        values = tuple(value for _, value in listed)
    return _Inner(node, [part for condition in bound for part in conjuncts_of(condition)], values)


def _bind_grouped(
    query: QueryTree, outer: Scope, taken: Collection[str], context: QueryContext, *, has_operands: bool
) -> _Inner:
    """A sub-query that groups or limits, or of several SELECTs."""
    rows = correlate_rows(query, outer, taken, context)
    if rows is None:
        node, _ = rename_apart(context.bind(query, replace(context, hints=(), outer=None)), taken)
        return _Inner(node, [], tuple(Column(of.name, of.type) for of in node.schema.fields))
    if rows.is_one_row:
        message = "An aggregate without GROUP BY gives one row for each row around it, also of none."
        remedy = "Compare it as a value: x = (SELECT MAX(t.y) FROM t WHERE t.key = outer.key)."
        raise context.script.error("SQL_UNSUPPORTED", message, query.span, remedy=remedy)
    return _Inner(rows.node, list(rows.conditions), tuple(value for _, value in rows.columns) if has_operands else ())


def is_plain(query: Select, script: Script) -> bool:
    """Whether the query only filters and chooses columns, so that it may name columns of the query around it."""
    computes = any(has_aggregates(item.value, script) or _ranks(item.value) for item in query.items)
    return not (query.groups or query.having is not None or query.distinct or computes)


def _ranks(term: Term) -> bool:
    return isinstance(term, CallTerm) and term.over is not None


def sides_of_on(
    left: Relation, right: Relation, kind: JoinKind, on: Term, context: QueryContext
) -> SidesWithAnswers | None:
    """The sides of a LEFT, RIGHT or FULL join with what answers the sub-queries of ON. Raises SqlError.

    A condition about the side alone that the join does not keep filters this side. None where a sub-query asks about
    both sides.
    """
    sides = _Sides(left, right, kind, context)
    return None if sides.has_two_sided_query(on) else sides.bind_answers(on)


def with_rows_alone(pairs: Relation, left: Relation, right: Relation, kind: JoinKind) -> Relation:
    """The pairs of an inner join, and with NULLs for the other side the rows that `kind` keeps and no pair has.

    Equal rows have the same partners, so the rows without one are all rows but those of the pairs.
    """
    side, new = rename_apart(right.node, left.node.schema.names)
    sides = (left.node.schema, Schema(tuple(replace(of, name=new[of.name]) for of in right.node.schema.fields)))
    found = [_timeless(pairs.node, *sides)]
    if kind.keeps_left:
        found.append(_beside_nulls(_without_pairs(left.node, pairs.node, sides[0]), *sides))
    if kind.keeps_right:
        found.append(_beside_nulls(_without_pairs(side, pairs.node, sides[1]), *sides))
    return pairs.over(Union(tuple(found)))


def _timeless(node: Node, *schemas: Schema) -> Node:
    """The columns of the schemas, none of which is a time attribute."""
    return Project(node, tuple((of.name, Column(of.name, of.type)) for schema in schemas for of in schema.fields))


def _without_pairs(node: Node, pairs: Node, schema: Schema) -> Node:
    return SetOperation(_timeless(node, schema), _timeless(pairs, schema), SetKind.EXCEPT, keep_all=True)


def _beside_nulls(node: Node, *schemas: Schema) -> Node:
    """The rows with NULL in the columns that they lack."""
    known = node.schema.names
    return Project(
        node,
        tuple(
            (of.name, Column(of.name, of.type) if of.name in known else Literal(None, of.type.as_nullable()))
            for schema in schemas
            for of in schema.fields
        ),
    )


class _Sides:
    def __init__(self, left: Relation, right: Relation, kind: JoinKind, context: QueryContext) -> None:
        self._sides = [left, right]
        self._values: list[dict[object, Expression]] = [{}, {}]
        self._filtered = {JoinKind.LEFT: 1, JoinKind.RIGHT: 0}.get(kind)
        self._context = context

    def bind_answers(self, on: Term) -> SidesWithAnswers:
        rest = []
        for term in conjuncts_of_term(on):
            queries = list(queries_of(term))
            if queries and self._filtered is not None and self._sides_named_in(term) <= {self._filtered}:
                side = self._sides[self._filtered]
                self._sides[self._filtered] = apply_where(term, side, self._context)
                continue
            for query in queries:
                self._answer(query)
            rest.append(term)
        left, right = self._sides
        return SidesWithAnswers(left, right, conjunction_of_terms(rest), *self._values)

    def has_two_sided_query(self, on: Term) -> bool:
        """Whether a sub-query asks about both sides."""
        return any(len(self._sides_named_in(query)) > 1 for query in queries_of(on))

    def _answer(self, query: QueryTerm | QuestionTerm) -> None:
        number = next(iter(self._sides_named_in(query)), 0)
        side, known = self._sides[number], self._values[number]
        scope = replace(scope_of(side, self._context.script, "ON"), replaced=known)
        node, found = with_values((query,), side.node, scope, self._context)
        self._sides[number] = side.over(node)
        known[identity(query)] = found.replaced[identity(query)]

    def _sides_named_in(self, term: Term) -> set[int]:
        """The sides that names in the term mean, also those in its sub-queries that mean nothing inside of these."""
        scopes = [scope_of(side, self._context.script, "ON") for side in self._sides]
        inside = (name for query in queries_of(term) for name in outer_names_of(query_tree(query.query), self._context))
        names = [*names_of(term), *inside]
        return {
            number for name in names for number, scope in enumerate(scopes) if column_of_name(name, scope) is not None
        }
