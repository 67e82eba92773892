"""Binds EXISTS and IN (SELECT ...) as values, by counting rows of sub-queries."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.streams.plan.expressions import Expression
from millstream.streams.sql.binder.from_clause import bind_source
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.binder.relations import scope_of
from millstream.streams.sql.binder.scalars import bind_term
from millstream.streams.sql.binder.scopes import Scope, ScopePart
from millstream.streams.sql.binder.subqueries.correlated import only_value
from millstream.streams.sql.syntax.expressions import (
    CallTerm,
    CaseTerm,
    ExistsTerm,
    LiteralTerm,
    NameTerm,
    Operation,
    QuantifiedTerm,
    QueryTerm,
    QuestionTerm,
    RowTerm,
    StarTerm,
    Term,
)
from millstream.streams.sql.syntax.queries import (
    Alias,
    OrderedQuery,
    QueryTree,
    Select,
    SelectItem,
    SubquerySource,
    query_tree,
)
from millstream.streams.sql.syntax.script import Script, Span
from millstream.streams.sql.syntax.terms import conjunction_of_terms, has_aggregates, identity

__all__ = ["SubqueryPredicate", "bind_subquery_predicate", "value_of_one_row"]

_ROWS = "rows of the sub-query"
_OPERAND = "operand of IN"
"""Names that no script can have in its way: they are not shown."""


@dataclass(frozen=True)
class SubqueryPredicate:
    """The answer as a term over sub-queries that each give one value, and the scope that it is bound in."""

    term: Term
    scope: Scope


def bind_subquery_predicate(
    query: QuestionTerm, scope: Scope, context: QueryContext, *, only_true: bool
) -> SubqueryPredicate:
    """The question in the rows of `scope`. Where `only_true` an answer that is not TRUE may be FALSE or UNKNOWN."""
    if isinstance(query, ExistsTerm):
        return SubqueryPredicate(_some(_select_columns(query_tree(query.query), (), context)[0], (), query.span), scope)
    operands = query.operand.values if isinstance(query.operand, RowTerm) else (query.operand,)
    select, columns = _select_columns(query_tree(query.query), operands, context)
    if len(columns) != len(operands):
        kind = "ANY or ALL" if isinstance(query, QuantifiedTerm) else "IN"
        message = f"The sub-query of {kind} has {len(columns)} columns, but {len(operands)} are compared."
        raise context.script.error("SQL_TYPE", message, query.span)
    if isinstance(query, QuantifiedTerm):
        return _bind_quantified(query, select, columns, scope, context, only_true=only_true)
    bound = [bind_term(operand, scope) for operand in operands]
    names, inner = _name_operands(bound, query.span, scope)
    found = _some(select, tuple(_operation("=", pair) for pair in zip(columns, names, strict=True)), query.span)
    if only_true or not any(value.type.nullable for value in (*bound, *_bind_columns(select, columns, context))):
        return SubqueryPredicate(found, inner)
    if len(operands) > 1:
        message = "IN with several columns that may be NULL is answered in WHERE among conditions joined by AND only."
        raise context.script.error("SQL_UNSUPPORTED", message, query.span, remedy="Use EXISTS.")
    nothing = LiteralTerm(None, query.span)
    has_null = _some(select, (Operation("IS NULL", columns, query.span),), query.span)
    unknown = Operation("IS NULL", names, query.span), has_null
    branches = (
        (found, LiteralTerm(True, query.span)),
        (Operation("NOT", (_some(select, (), query.span),), query.span), LiteralTerm(False, query.span)),
        (Operation("OR", unknown, query.span), nothing),
    )
    return SubqueryPredicate(CaseTerm(None, branches, LiteralTerm(False, query.span), query.span), inner)


def _bind_quantified(
    query: QuantifiedTerm,
    select: Select,
    columns: tuple[Term, ...],
    scope: Scope,
    context: QueryContext,
    *,
    only_true: bool,
) -> SubqueryPredicate:
    """A comparison with the least or the greatest value of the rows, which decides for all of them.

    Without rows ANY is FALSE and ALL is TRUE; a NULL among them leaves unknown what the others do not decide.
    """
    if len(columns) != 1:
        message = f"{query.operator} {_word(query)} compares one column."
        raise context.script.error("SQL_UNSUPPORTED", message, query.span, remedy="Use EXISTS.")
    (name,), inner = _name_operands([bind_term(query.operand, scope)], query.span, scope)
    ends = [_end(function, select, columns[0], query.span) for function in _ends_of(query)]
    compared = [Operation(query.operator, (name, end), query.span) for end in ends]
    decided: Term = compared[0] if len(compared) == 1 else Operation(_joining(query), tuple(compared), query.span)
    if query.of_all:
        decided = Operation("OR", (Operation("IS NULL", (ends[0],), query.span), decided), query.span)
    elif not only_true:
        decided = Operation("AND", (Operation("IS NOT NULL", (ends[0],), query.span), decided), query.span)
    if not _bind_columns(select, columns, context)[0].type.nullable or (only_true and not query.of_all):
        return SubqueryPredicate(decided, inner)
    has_null = _some(select, (Operation("IS NULL", columns, query.span),), query.span)
    otherwise = LiteralTerm(query.of_all, query.span)
    doubt = CaseTerm(None, ((has_null, LiteralTerm(None, query.span)),), otherwise, query.span)
    return SubqueryPredicate(Operation("AND" if query.of_all else "OR", (decided, doubt), query.span), inner)


def _ends_of(query: QuantifiedTerm) -> tuple[str, ...]:
    """The aggregates of the values that decide."""
    if query.operator in ("=", "<>"):
        return ("MIN", "MAX")
    return ("MIN",) if query.operator.startswith(">") is not query.of_all else ("MAX",)


def _joining(query: QuantifiedTerm) -> str:
    return "AND" if query.of_all else "OR"


def _word(query: QuantifiedTerm) -> str:
    return "ALL" if query.of_all else "ANY"


def _end(function: str, select: Select, column: Term, span: Span) -> QueryTerm:
    item = SelectItem(CallTerm(function, (column,), span, span), None)
    return QueryTerm(replace(select, items=(item,), distinct=False, span=span), span)


def value_of_one_row(query: QueryTerm) -> Select:
    """The SELECT of the value of the only row of a sub-query; NULL where it has several, or none."""
    source = SubquerySource(query_tree(query.query), query.span, Alias(_ROWS, ("value",)))
    value = only_value(NameTerm((_ROWS, "value"), query.span))
    return Select((SelectItem(value, None),), source, None, (), None, query.span)


def _select_columns(
    query: QueryTree, operands: tuple[Term, ...], context: QueryContext
) -> tuple[Select, tuple[Term, ...]]:
    """A SELECT whose rows are those of the query, and its columns; the query itself where it only filters."""
    if isinstance(query, OrderedQuery) and not operands and query.limit != 0 and not query.offset:
        query = query.query
    if isinstance(query, Select) and query.source is not None and _only_filters(query, context.script):
        return query, tuple(item.value for item in query.items)
    names = tuple(f"column {place}" for place, _ in enumerate(operands))
    source = SubquerySource(query, query.span, Alias(_ROWS, names))
    select = Select((SelectItem(StarTerm(query.span), None),), source, None, (), None, query.span)
    return select, tuple(NameTerm((_ROWS, name), query.span) for name in names)


def _only_filters(select: Select, script: Script) -> bool:
    grouped = select.groups or select.having is not None or select.qualify is not None
    return not grouped and not any(has_aggregates(item.value, script) for item in select.items)


def _name_operands(bound: list[Expression], span: Span, scope: Scope) -> tuple[tuple[Term, ...], Scope]:
    """Names for bound operands, which no column of a sub-query can take away, and the scope that knows them."""
    names = tuple(NameTerm((f"{_OPERAND} {span.start} {place}",), span) for place, _ in enumerate(bound))
    known = tuple((name.parts[0], value) for name, value in zip(names, bound, strict=True))
    replaced = {**scope.replaced, **{identity(name): value for name, value in zip(names, bound, strict=True)}}
    return names, replace(scope, parts=(*scope.sources, ScopePart(None, known)), replaced=replaced)


def _bind_columns(select: Select, columns: tuple[Term, ...], context: QueryContext) -> list[Expression]:
    """The columns of a sub-query over its own rows."""
    assert select.source is not None
    inside = replace(context, hints=(), outer=None)
    here = scope_of(bind_source(select.source, inside), context.script, "SELECT")
    return [bind_term(column, here) for column in columns]


def _operation(operator: str, operands: tuple[Term, Term]) -> Operation:
    return Operation(operator, operands, operands[0].span)


def _some(select: Select, conditions: tuple[Term, ...], span: Span) -> Term:
    """Whether the SELECT has a row that fits the conditions as well."""
    terms = [*conditions] if select.where is None else [select.where, *conditions]
    count = SelectItem(CallTerm("COUNT", (), span, span, star=True), None)
    counted = replace(select, items=(count,), where=conjunction_of_terms(terms), distinct=False, span=span)
    return Operation(">", (QueryTerm(counted, span), LiteralTerm(0, span)), span)
