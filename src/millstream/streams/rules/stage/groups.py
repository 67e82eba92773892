"""The key atoms of one field, their engines, and the cache before them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.engines.databases import HAS_HYPERSCAN
from millstream.streams.rules.engines.engine import Found, PredicateEngine, ValueForms
from millstream.streams.rules.engines.literals import (
    MOST_LITERAL_BYTES,
    FewLiteralsEngine,
    LiteralEngine,
    LiteralPattern,
)
from millstream.streams.rules.engines.patterns import PatternEngine, RegularExpression
from millstream.streams.rules.engines.raw_texts import RawTextFilter, raw_text_filter
from millstream.streams.rules.engines.value_engines import EachEngine, NetworkEngine, RangeEngine, SetEngine
from millstream.streams.rules.event_rows import Distinct, EventRows, Places, Rows
from millstream.streams.rules.predicate_tests import Form, FormKind, PredicateTest
from millstream.streams.rules.reference import Gathered, elements
from millstream.streams.rules.stage.fingerprints import CacheBudget, FingerprintCache
from millstream.streams.rules.watch import Watch

__all__ = ["FieldGroup"]

_FEW: Final = 6
"""Literals that are found faster one by one than by hyperscan."""

_SHORT_BYTES: Final = 2
"""Literals up to this size are looked for one by one: hyperscan finds them at every other character."""

_BOUNDED: Final = frozenset({Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL})
_LITERAL: Final = frozenset({Op.CONTAINS, Op.STARTS, Op.ENDS})


Members = Sequence[tuple[int, PredicateTest]]

_LISTS: Final = frozenset((list, Gathered))


class FieldGroup:
    """Atoms of one field, none of them of two fields, numbered as given."""

    def __init__(self, field: str, questions: Sequence[PredicateTest], watch: Watch, budget: CacheBudget) -> None:
        self.field = field
        self.atoms = tuple(question.predicate for question in questions)
        self._watch = watch
        self._of_nothing = [number for number, question in enumerate(questions) if question.ask(None)]
        numbered = list(enumerate(questions))
        divided = [one for one in numbered if not one[1].predicate.whole_lists]
        whole = [one for one in numbered if one[1].predicate.whole_lists]
        self.cache = FingerprintCache(budget)
        self._raw_filter: RawTextFilter | None = None
        self._filtered = False
        self._divided, self._whole = self._engines(divided), self._engines(whole)
        self._of_nulls = [number for number, question in divided if question.ask(None)]
        self.engines = (*self._divided, *self._whole)

    def prefilter(self, events: EventRows) -> Rows | None:
        """Of events whose whole text is this field: those that any of the atoms may be true of. None: all."""
        raw = events.raw_of(self.field)
        if raw is None:
            return None
        if not self._filtered:
            self._filtered = True
            self._raw_filter = raw_text_filter(self.atoms, Places({self.field: ((),)}))
        return None if self._raw_filter is None else self._raw_filter.rows(raw)

    def find(self, distinct: Distinct) -> dict[int, Sequence[int]]:
        """The true atoms of the values, by the value's number; only values with any."""
        if not distinct.repeats:
            return dict(self._find(distinct.values))
        values: list[Any] = distinct.values
        keys: list[Hashable] = distinct.keys
        try:
            nothing = keys.index(None)
        except ValueError:
            return self.cache.look_up(keys, values, self._find)
        values = values[:nothing] + values[nothing + 1 :]
        keys = keys[:nothing] + keys[nothing + 1 :]
        found = self.cache.look_up(keys, values, self._find) if values else {}
        found = {number + (number >= nothing): atoms for number, atoms in found.items()}
        if self._of_nothing:
            found[nothing] = self._of_nothing
        return found

    def _find(self, values: Sequence[Any]) -> Found:
        if not _LISTS.isdisjoint(map(type, values)):
            return self._find_with_lists(values)
        return _find_all(self.engines, values)

    def _find_with_lists(self, values: Sequence[Any]) -> Found:
        """The same where some values are lists: what is true of an element is true of its list."""
        found = _find_all(self._whole, values)
        owners: list[int] = []
        parts: list[Any] = []
        for number, value in enumerate(values):
            for part in elements(value) if isinstance(value, list) else (value,):
                if part is None:
                    found[number] += self._of_nulls
                else:
                    owners.append(number)
                    parts.append(part)
        for place, atoms in _find_all(self._divided, parts).items():
            found[owners[place]] += atoms
        return defaultdict(list, {number: list(dict.fromkeys(atoms)) for number, atoms in found.items() if atoms})

    def _engines(self, questions: Members) -> list[PredicateEngine]:
        kinds: dict[tuple[Any, ...], list[tuple[int, PredicateTest]]] = defaultdict(list)
        for number, question in questions:
            kinds[_kind_of(question)].append((number, question))
        engines: list[PredicateEngine] = []
        each = kinds.pop(("each",), [])
        for (kind, form, *rest), members in kinds.items():
            made = _MAKERS[kind](form, members, self._watch, *rest)
            if made is None:
                each += members
            else:
                engines.append(made)
        if each:
            engines.append(EachEngine([(number, one.form, self._watch.test_of(one)) for number, one in each]))
        return engines


def _find_all(engines: Iterable[PredicateEngine], values: Sequence[Any]) -> Found:
    found: Found = defaultdict(list)
    formed = ValueForms(values)
    for engine in engines:
        engine.find(formed, found)
    return found


def _kind_of(question: PredicateTest) -> tuple[Any, ...]:
    """The engine that would take an atom, its form, and what else its atoms must share."""
    predicate, form = question.predicate, question.form
    of_nothing = predicate.absent is True and form.kind is not FormKind.TEXT
    numbers_only = not any(isinstance(operand, float) and math.isnan(operand) for operand in predicate.operands)
    if of_nothing or not predicate.operands or not numbers_only:
        return ("each",)
    operand = predicate.operands[0]
    if predicate.op is Op.IN and not isinstance(operand, bool):
        return "set", form
    if predicate.op in _BOUNDED and not isinstance(operand, bool):
        return "range", form, predicate.op
    if predicate.op is Op.CIDR:
        return "network", form
    if predicate.op in _LITERAL:
        size = len(_operands(predicate)[0].encode("utf-8", "surrogatepass"))
        return "literal" if _SHORT_BYTES < size <= MOST_LITERAL_BYTES else "odd literal", form
    if predicate.op is Op.MATCHES:
        return "pattern", form
    return ("each",)


def _set_engine(form: Form, members: Members, _watch: Watch) -> PredicateEngine:
    return SetEngine(form, [(number, _operands(question.predicate)) for number, question in members])


def _range(form: Form, members: Members, _watch: Watch, op: Op) -> PredicateEngine:
    return RangeEngine(form, op, [(number, _operands(question.predicate)[0]) for number, question in members])


def _network(form: Form, members: Members, _watch: Watch) -> PredicateEngine:
    return NetworkEngine(
        form, [(number, [str(one) for one in question.predicate.operands]) for number, question in members]
    )


def _literal(form: Form, members: Members, _watch: Watch) -> PredicateEngine:
    literals = _literals(members)
    return LiteralEngine(form, literals) if HAS_HYPERSCAN and len(members) > _FEW else FewLiteralsEngine(form, literals)


def _odd_literal(form: Form, members: Members, _watch: Watch) -> PredicateEngine:
    return FewLiteralsEngine(form, _literals(members))


def _literals(members: Members) -> list[LiteralPattern]:
    return [
        LiteralPattern(number, question.predicate.op, _operands(question.predicate)[0]) for number, question in members
    ]


def _pattern(form: Form, members: Members, watch: Watch) -> PredicateEngine | None:
    if not HAS_HYPERSCAN:
        return None
    return PatternEngine(form, [RegularExpression(number, one, watch.test_of(one)) for number, one in members])


def _operands(predicate: Predicate) -> list[Any]:
    if isinstance(predicate.operands[0], str):
        return [str(one).lower() if predicate.caseless else str(one) for one in predicate.operands]
    return list(predicate.operands)


_MAKERS: Final[dict[str, Callable[..., PredicateEngine | None]]] = {
    "set": _set_engine,
    "range": _range,
    "network": _network,
    "literal": _literal,
    "odd literal": _odd_literal,
    "pattern": _pattern,
}
