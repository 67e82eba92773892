"""ON of an outer join with sub-queries in it: each is answered beside the rows of the side that it asks about."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.joins import JoinKind
from millstream.streams.sql.correlated import names_around
from millstream.streams.sql.query_context import QueryContext, SidesWithAnswers
from millstream.streams.sql.relations import Relation, scope_of
from millstream.streams.sql.scopes import column_of_name, identity
from millstream.streams.sql.subqueries import apply_where, with_values
from millstream.streams.sql.syntax import QueryTerm, QuestionTerm, Term
from millstream.streams.sql.terms import conjunction_of_terms, conjuncts_of_term, names_of, queries_of

__all__ = ["sides_of_on"]


def sides_of_on(left: Relation, right: Relation, kind: JoinKind, on: Term, context: QueryContext) -> SidesWithAnswers:
    """The sides of a LEFT, RIGHT or FULL join with what answers the sub-queries of ON. Raises SqlError.

    A condition about the side alone that the join does not keep filters this side.
    """
    return _Sides(left, right, kind, context).answered(on)


class _Sides:
    def __init__(self, left: Relation, right: Relation, kind: JoinKind, context: QueryContext) -> None:
        self._sides = [left, right]
        self._values: list[dict[object, Expression]] = [{}, {}]
        self._filtered = {JoinKind.LEFT: 1, JoinKind.RIGHT: 0}.get(kind)
        self._context = context

    def answered(self, on: Term) -> SidesWithAnswers:
        rest = []
        for term in conjuncts_of_term(on):
            queries = list(queries_of(term))
            if queries and self._filtered is not None and self._asked(term) <= {self._filtered}:
                side = self._sides[self._filtered]
                self._sides[self._filtered] = apply_where(term, side, self._context)
                continue
            for query in queries:
                self._answer(query)
            rest.append(term)
        left, right = self._sides
        return SidesWithAnswers(left, right, conjunction_of_terms(rest), *self._values)

    def _answer(self, query: QueryTerm | QuestionTerm) -> None:
        asked = self._asked(query)
        if len(asked) > 1:
            message = "A sub-query in ON of an outer join asks about one side of it, this one about both."
            remedy = "Join the tables in a sub-query of FROM first, or use an inner join."
            raise self._context.script.error("SQL_UNSUPPORTED", message, query.span, remedy=remedy)
        number = next(iter(asked), 0)
        side, known = self._sides[number], self._values[number]
        scope = replace(scope_of(side, self._context.script, "ON"), replaced=known)
        node, found = with_values((query,), side.node, scope, self._context)
        self._sides[number] = side.over(node)
        known[identity(query)] = found.replaced[identity(query)]

    def _asked(self, term: Term) -> set[int]:
        """The sides that names in the term mean, also those in its sub-queries that mean nothing inside of these."""
        scopes = [scope_of(side, self._context.script, "ON") for side in self._sides]
        inside = (name for query in queries_of(term) for name in names_around(query.query, self._context))
        names = [*names_of(term), *inside]
        return {
            number for name in names for number, scope in enumerate(scopes) if column_of_name(name, scope) is not None
        }
