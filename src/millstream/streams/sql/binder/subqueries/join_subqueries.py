"""ON of an outer join with sub-queries in it: each is answered beside the rows of the side that it asks about.

Where one asks about both sides, the inner join answers it, and the rows without a partner are those that it lacks.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.plan.expressions import Column, Expression, Literal
from millstream.streams.plan.joins import JoinKind, SetKind, SetOperation
from millstream.streams.plan.nodes import Node, Project, Union
from millstream.streams.plan.types import Schema
from millstream.streams.sql.binder.query_context import QueryContext, SidesWithAnswers
from millstream.streams.sql.binder.relations import Relation, rename_apart, scope_of
from millstream.streams.sql.binder.scopes import column_of_name
from millstream.streams.sql.binder.subqueries.correlated import outer_names_of
from millstream.streams.sql.binder.subqueries.where_subqueries import apply_where, with_values
from millstream.streams.sql.syntax.expressions import QueryTerm, QuestionTerm, Term
from millstream.streams.sql.syntax.queries import query_tree
from millstream.streams.sql.syntax.terms import conjunction_of_terms, conjuncts_of_term, identity, names_of, queries_of

__all__ = ["sides_of_on", "with_rows_alone"]


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
