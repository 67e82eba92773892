"""What stands inside of terms: names, aggregates, calls with OVER, and sub-queries."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import cast, get_args

from millstream.streams.functions.registry import AGGREGATES
from millstream.streams.sql.query_syntax import QueryTree
from millstream.streams.sql.scopes import identity
from millstream.streams.sql.script import Script, Span
from millstream.streams.sql.syntax import CallTerm, NameTerm, Operation, QueryTerm, QuestionTerm, Term

__all__ = [
    "aggregates_of",
    "conjunction_of_terms",
    "conjuncts_of_term",
    "has_aggregates",
    "names_of",
    "over_calls_of",
    "queries_of",
    "with_names",
]


def _found(value: object, wanted: Callable[[object], bool], known: Container[object] = ()) -> Iterator[object]:
    """The outermost parts that are wanted, in the order of the text; nothing from inside of sub-queries.

    What is `known` by its identity is passed over, with all that is in it.
    """
    if known and identity(value) in known:
        return
    if wanted(value):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _found(part, wanted, known)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, (Span, *get_args(QueryTree))):
        for name in value.__dataclass_fields__:
            yield from _found(getattr(value, name), wanted, known)


def aggregates_of(term: object, script: Script) -> Iterator[CallTerm]:
    """The calls of aggregates, also the user's, that are no OVER calls; those inside of OVER calls too."""

    def is_one(part: object) -> bool:
        if not isinstance(part, CallTerm) or part.over is not None:
            return False
        return part.name in AGGREGATES or script.aggregate(part.name) is not None

    for found in _found(term, is_one):
        if isinstance(found, CallTerm):
            yield found


def has_aggregates(term: object, script: Script) -> bool:
    return next(aggregates_of(term, script), None) is not None


def over_calls_of(term: object) -> Iterator[CallTerm]:
    """The calls with OVER."""
    for found in _found(term, lambda part: isinstance(part, CallTerm) and part.over is not None):
        if isinstance(found, CallTerm):
            yield found


def names_of(term: object) -> Iterator[NameTerm]:
    """The names of columns."""
    for found in _found(term, lambda part: isinstance(part, NameTerm)):
        if isinstance(found, NameTerm):
            yield found


def queries_of(term: object, known: Container[object] = ()) -> Iterator[QueryTerm | QuestionTerm]:
    """The sub-queries, without those that are `known` by their identity or stand inside of what is."""
    for found in _found(term, lambda part: isinstance(part, QueryTerm | QuestionTerm), known):
        if isinstance(found, QueryTerm | QuestionTerm):
            yield found


def conjuncts_of_term(term: Term) -> Iterator[Term]:
    """The conditions that AND joins."""
    if isinstance(term, Operation) and term.operator == "AND":
        for operand in term.operands:
            yield from conjuncts_of_term(operand)
    else:
        yield term


def conjunction_of_terms(terms: list[Term]) -> Term | None:
    """All conditions as one; None for none."""
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else Operation("AND", tuple(terms), terms[0].span.to(terms[-1].span))


def with_names(value: Term, meanings: Mapping[str, Term]) -> Term:
    """The term with other terms in place of plain names."""
    return cast(Term, _replaced(value, meanings))


def _replaced(value: object, meanings: Mapping[str, Term]) -> object:
    if isinstance(value, NameTerm):
        return meanings.get(value.parts[0], value) if len(value.parts) == 1 else value
    if isinstance(value, tuple):
        return tuple(_replaced(part, meanings) for part in value)
    if not hasattr(value, "__dataclass_fields__") or isinstance(value, (Span, *get_args(QueryTree))):
        return value
    parts = {name: _replaced(getattr(value, name), meanings) for name in value.__dataclass_fields__}
    return type(value)(**parts)
