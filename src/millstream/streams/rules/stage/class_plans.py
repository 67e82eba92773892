"""The plans of all event classes, each built on the class's first event.

Classes of events: those that answer the same to what most rules pin (a channel, an event id).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from millstream.streams.rules.conditions import Condition, Op, Predicate, Truth, predicates_of
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.event_rows import Distinct, EventRows, Rows
from millstream.streams.rules.predicate_tests import answer_of
from millstream.streams.rules.stage.class_plan import ClassPlan, PlanContext, ReducedRule
from millstream.streams.rules.stage.condition_compiler import ConditionCompiler, pins_of, reduce_condition

__all__ = ["ClassField", "ClassPlans", "class_fields"]

Pins = dict[str, frozenset[Predicate]]

_MOST_FIELDS: Final = 3
"""Fields that part events into classes, at most."""

_LEAST_RULES: Final = 8
_LEAST_SHARE: Final = 0.1
"""Rules, and share of all rules, that must pin a field for it to part events."""

_RULES_PER_ATOM: Final = 3
"""How many rules must pin a field for each atom in which they do; with fewer, a look into a table finds them sooner."""

_MOST_KNOWN_CLASSES: Final = 65_536
"""Values of a class field whose class is remembered."""


def class_fields(pins: Sequence[Pins]) -> list[str]:
    """The fields worth parting events by, for rules with these pins."""
    rules = Counter(field for one in pins for field in one)
    atoms: dict[str, set[Predicate]] = {}
    for one in pins:
        for field, pinned in one.items():
            atoms.setdefault(field, set()).update(pinned)
    least = max(_LEAST_RULES, len(pins) * _LEAST_SHARE)
    worth = [
        field for field, count in rules.most_common() if count >= least and count >= _RULES_PER_ATOM * len(atoms[field])
    ]
    return worth[:_MOST_FIELDS]


class ClassField:
    """A field that parts events, and the atoms about it that rules ask."""

    def __init__(self, field: str, atoms: Sequence[Predicate], questions: ConditionCompiler) -> None:
        self.field = field
        self._tests = [(predicate, questions.of(predicate).form, questions.test(predicate)) for predicate in atoms]
        self._codes: dict[tuple[bool | None, ...], int] = {}
        self._known: dict[Hashable, int] = {}
        self.answers: list[dict[Predicate, bool | None]] = []
        """For each code what its atoms say."""

    def codes(self, events: EventRows) -> Rows:
        """For each event a small number, the same where all atoms say the same."""
        distinct = events.distinct(self.field)
        known = self._known
        if len(known) > _MOST_KNOWN_CLASSES:
            known.clear()
        of_values = np.empty(len(distinct.values), dtype=np.int64)
        for number, (key, value) in enumerate(zip(distinct.keys, distinct.values, strict=True)):
            code = known.get(key)
            if code is None:
                code = known[key] = self.code(value)
            of_values[number] = code
        return of_values[distinct.codes]

    def code(self, value: Any) -> int:
        """The number of one value."""
        answers = tuple(answer_of(test, form_of(form, value)) for _, form, test in self._tests)
        code = self._codes.get(answers)
        if code is None:
            code = self._codes[answers] = len(self.answers)
            self.answers.append({predicate: one for (predicate, _, _), one in zip(self._tests, answers, strict=True)})
        return code


_MOST_CLASSES: Final = 4_096
"""Classes whose plans are kept; those that were not seen for longest go."""

_MOST_KNOWN: Final = 65_536
"""Tuples of class fields' values whose class is remembered."""

_FEW_GENERAL: Final = 32
"""General rules that are taken into each class: more would be made ready too often, fewer cost a look at each event."""

Codes = tuple[int, ...]


class ClassPlans:
    """Parts events by the fields that many rules pin, and knows what is left of the rules in each part.

    Rules that pin none of these fields are general: a few are judged with each class, more of them over all events at
    once, by one plan.
    """

    def __init__(self, formulas: Mapping[int, Condition], rooms: PlanContext) -> None:
        self._formulas = formulas
        self._rooms = rooms
        pins = {number: pins_of(formula) for number, formula in formulas.items()}
        names = class_fields(list(pins.values()))
        self._general = [number for number, one in pins.items() if not any(name in one for name in names)]
        self._folded = frozenset(self._general if names and len(self._general) <= _FEW_GENERAL else ())
        self._general_plan: ClassPlan | None = None
        bound = {number: one for number, one in pins.items() if any(name in one for name in names)}
        self._by_atom: list[dict[Predicate, set[int]]] = []
        self._unpinned: list[set[int]] = []
        for name in names:
            by_atom: dict[Predicate, set[int]] = {}
            for number, one in bound.items():
                for predicate in one.get(name, ()):
                    by_atom.setdefault(predicate, set()).add(number)
            self._by_atom.append(by_atom)
            self._unpinned.append({number for number, one in bound.items() if name not in one})
        self.fields = [ClassField(name, self._pinned_predicates(name, bound), rooms.questions) for name in names]
        self._together: dict[tuple[Any, ...], Codes] = {}
        self._plans: OrderedDict[Codes, ClassPlan | None] = OrderedDict()
        self._same: dict[tuple[ReducedRule, ...], ClassPlan] = {}

    def _pinned_predicates(self, name: str, numbers: Mapping[int, object]) -> list[Predicate]:
        every = (predicate for number in numbers for predicate in predicates_of(self._formulas[number]))
        return list(
            dict.fromkeys(
                predicate for predicate in every if predicate.field == name and predicate.op in (Op.IN, Op.IS_NULL)
            )
        )

    def parts(self, events: EventRows) -> Iterator[tuple[ClassPlan, Rows | None]]:
        """The plans to judge a batch by, each with its rows; None: all of them."""
        if not events.count:
            return
        if self._general and not self._folded:
            if self._general_plan is None:
                left = [ReducedRule(number, self._formulas[number]) for number in self._general]
                self._general_plan = ClassPlan(left, events, self._rooms)
            yield self._general_plan, None
        if self.fields:
            rows_of: dict[ClassPlan, list[Rows]] = {}
            for rows, codes in self._classes(events):
                plan = self._plan(codes, events, rows)
                if plan is not None:
                    rows_of.setdefault(plan, []).append(rows)
            for plan, parts in rows_of.items():
                rows = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
                yield plan, None if len(rows) == events.count else rows

    def plans(self) -> list[ClassPlan]:
        """The plans that were made so far."""
        every = [self._general_plan, *self._plans.values()]
        return list(dict.fromkeys(plan for plan in every if plan is not None))

    @property
    def classes(self) -> int:
        """How many classes were seen and are remembered."""
        return len(self._plans)

    def _classes(self, events: EventRows) -> list[tuple[Rows, Codes]]:
        together = events.together([field.field for field in self.fields])
        if together is not None:
            return self._classes_of(together)
        codes = [field.codes(events) for field in self.fields]
        joined = codes[0]
        for more in codes[1:]:
            joined = joined * (int(more.max()) + 1) + more
        return [(rows, tuple(int(code[rows[0]]) for code in codes)) for rows in _split_rows(joined)]

    def _classes_of(self, together: Distinct) -> list[tuple[Rows, Codes]]:
        """The same by the different tuples of values, which are few."""
        known = self._together
        if len(known) > _MOST_KNOWN:
            known.clear()
        numbers: dict[Codes, int] = {}
        of_values = np.empty(len(together.values), dtype=np.int64)
        for place, values in enumerate(together.values):
            codes = known.get(values)
            if codes is None:
                coded = (field.code(value) for field, value in zip(self.fields, values, strict=True))
                codes = known[values] = tuple(coded)
            of_values[place] = numbers.setdefault(codes, len(numbers))
        every = list(numbers)
        joined = of_values[together.codes]
        return [(rows, every[joined[rows[0]]]) for rows in _split_rows(joined)]

    def _plan(self, codes: Codes, events: EventRows, rows: Rows) -> ClassPlan | None:
        if codes in self._plans:
            self._plans.move_to_end(codes)
            return self._plans[codes]
        left = self._reduce_rules(codes)
        plan = self._same.get(left)
        if plan is None and left:
            plan = self._same[left] = ClassPlan(left, events.part(rows), self._rooms)
        self._plans[codes] = plan
        if len(self._plans) > _MOST_CLASSES:
            self._plans.popitem(last=False)
            if len(self._same) > _MOST_CLASSES:
                self._same.clear()
        return plan

    def _reduce_rules(self, codes: Codes) -> tuple[ReducedRule, ...]:
        """What is left of the rules in a class."""
        known: dict[Predicate, bool | None] = {}
        numbers: set[int] | None = None
        for place, code in enumerate(codes):
            answers = self.fields[place].answers[code]
            known |= answers
            fitting = set(self._unpinned[place])
            for predicate, bound in self._by_atom[place].items():
                if answers[predicate]:
                    fitting |= bound
            numbers = fitting if numbers is None else numbers & fitting
        every = sorted(self._folded | (numbers or set()))
        left = (ReducedRule(number, reduce_condition(self._formulas[number], known)) for number in every)
        return tuple(rule for rule in left if rule.formula != Truth(False))


def _split_rows(joined: Rows) -> list[Rows]:
    """The rows of each number."""
    order = np.argsort(joined, kind="stable")
    starts = np.flatnonzero(np.diff(joined[order], prepend=-1))
    return np.split(order, starts[1:])
