"""The syntax tree of terms: names, aggregates, calls with OVER, and sub-queries."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import TypeVar, cast, get_args

from millstream.streams.functions.registry import AGGREGATES
from millstream.streams.sql.syntax.expressions import CallTerm, NameTerm, Operation, QueryTerm, QuestionTerm, Term
from millstream.streams.sql.syntax.queries import QueryTree
from millstream.streams.sql.syntax.script import Script, Span

__all__ = [
    "aggregates_of",
    "calls_of",
    "conjunction_of_terms",
    "conjuncts_of_term",
    "has_aggregates",
    "identity",
    "names_of",
    "over_calls_of",
    "queries_of",
    "with_names",
    "with_terms",
]


def identity(term: object) -> object:
    """A value that is equal for terms that say the same, wherever they stand and however functions are spelled."""
    if isinstance(term, tuple):
        return tuple(identity(part) for part in term)
    if isinstance(term, Span):
        return None
    if hasattr(term, "__dataclass_fields__"):
        parts = (identity(getattr(term, name)) for name in term.__dataclass_fields__ if not name.endswith("span"))
        return (type(term).__name__, *parts)
    return (type(term).__name__, term)


def _find_parts(value: object, wanted: Callable[[object], bool], known: Container[object] = ()) -> Iterator[object]:
    """The outermost parts that are wanted, in the order of the text; nothing from inside of sub-queries.

    What is `known` by its identity is passed over, with all that is in it.
    """
    if known and identity(value) in known:
        return
    if wanted(value):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _find_parts(part, wanted, known)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, (Span, *get_args(QueryTree))):
        for name in value.__dataclass_fields__:
            yield from _find_parts(getattr(value, name), wanted, known)


def aggregates_of(term: object, script: Script) -> Iterator[CallTerm]:
    """The calls of aggregates, also the user's, that are no OVER calls; those inside of OVER calls too."""

    def is_one(part: object) -> bool:
        if not isinstance(part, CallTerm) or part.over is not None:
            return False
        return part.name in AGGREGATES or script.aggregate(part.name) is not None

    for found in _find_parts(term, is_one):
        if isinstance(found, CallTerm):
            yield found


def has_aggregates(term: object, script: Script) -> bool:
    return next(aggregates_of(term, script), None) is not None


def over_calls_of(term: object) -> Iterator[CallTerm]:
    """The calls with OVER."""
    for found in _find_parts(term, lambda part: isinstance(part, CallTerm) and part.over is not None):
        if isinstance(found, CallTerm):
            yield found


def calls_of(term: object, name: str) -> Iterator[CallTerm]:
    """The calls of a function, which is written in capitals here."""
    for found in _find_parts(term, lambda part: isinstance(part, CallTerm) and part.name.upper() == name):
        if isinstance(found, CallTerm):
            yield found


def names_of(term: object) -> Iterator[NameTerm]:
    """The names of columns."""
    for found in _find_parts(term, lambda part: isinstance(part, NameTerm)):
        if isinstance(found, NameTerm):
            yield found


def queries_of(term: object, known: Container[object] = ()) -> Iterator[QueryTerm | QuestionTerm]:
    """The sub-queries, without those that are `known` by their identity or stand inside of what is."""
    for found in _find_parts(term, lambda part: isinstance(part, QueryTerm | QuestionTerm), known):
        if isinstance(found, QueryTerm | QuestionTerm):
            yield found


def conjuncts_of_term(term: Term) -> Iterator[Term]:
    """The conditions that AND joins; an equation that stands in every branch of an OR is one of them."""
    if isinstance(term, Operation) and term.operator == "AND":
        for operand in term.operands:
            yield from conjuncts_of_term(operand)
    elif isinstance(term, Operation) and term.operator == "OR":
        yield from _factor_out(term)
    else:
        yield term


def _factor_out(term: Operation) -> Iterator[Term]:
    """(a AND b) OR (a AND c) as a, then b OR c; a join can use the equation as a key then."""
    branches = [list(conjuncts_of_term(branch)) for branch in _disjuncts(term)]
    identities = [{identity(part) for part in branch} for branch in branches]
    common = {identity(part): part for part in branches[0] if _is_equation(part)}
    common = {key: part for key, part in common.items() if all(key in parts for parts in identities)}
    if not common:
        yield term
        return
    yield from common.values()
    rest = [conjunction_of_terms([part for part in branch if identity(part) not in common]) for branch in branches]
    left = [part for part in rest if part is not None]
    if len(left) == len(rest):
        yield Operation("OR", tuple(left), term.span)


def _disjuncts(term: Term) -> Iterator[Term]:
    if isinstance(term, Operation) and term.operator == "OR":
        for operand in term.operands:
            yield from _disjuncts(operand)
    else:
        yield term


def _is_equation(term: Term) -> bool:
    return isinstance(term, Operation) and term.operator == "="


def conjunction_of_terms(terms: list[Term]) -> Term | None:
    """All conditions as one; None for none."""
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else Operation("AND", tuple(terms), terms[0].span.to(terms[-1].span))


def with_names(value: Term, meanings: Mapping[str, Term], inside_of_calls: Mapping[str, Term] | None = None) -> Term:
    """The term with other terms in place of plain names; `inside_of_calls` are those inside of aggregates and OVER."""
    return cast(Term, _replace_names(value, meanings, meanings if inside_of_calls is None else inside_of_calls))


_Part = TypeVar("_Part")


def with_terms(value: _Part, meanings: Mapping[object, Term]) -> _Part:
    """A part of a query with other terms in place of calls, by their identity; sub-queries stay as they are."""
    return cast(_Part, _exchange(value, meanings))


def _exchange(value: object, meanings: Mapping[object, Term]) -> object:
    if isinstance(value, tuple):
        return tuple(_exchange(part, meanings) for part in value)
    if not hasattr(value, "__dataclass_fields__") or isinstance(value, (Span, *get_args(QueryTree))):
        return value
    found = meanings.get(identity(value)) if isinstance(value, CallTerm) else None
    if found is not None:
        return found
    parts = {name: _exchange(getattr(value, name), meanings) for name in value.__dataclass_fields__}
    return type(value)(**parts)


def _replace_names(value: object, meanings: Mapping[str, Term], inside: Mapping[str, Term]) -> object:
    if isinstance(value, NameTerm):
        return meanings.get(value.parts[0], value) if len(value.parts) == 1 else value
    if isinstance(value, tuple):
        return tuple(_replace_names(part, meanings, inside) for part in value)
    if not hasattr(value, "__dataclass_fields__") or isinstance(value, (Span, *get_args(QueryTree))):
        return value
    if isinstance(value, CallTerm) and (value.over is not None or value.name in AGGREGATES):
        meanings = inside
    parts = {name: _replace_names(getattr(value, name), meanings, inside) for name in value.__dataclass_fields__}
    return type(value)(**parts)
