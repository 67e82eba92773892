"""The evaluation plan of one event class: key predicates first, the rest on a match."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from millstream.streams.rules.conditions import (
    OF_TWO_FIELDS,
    All,
    AnyOf,
    Condition,
    Op,
    Predicate,
    Truth,
    all_of,
    predicates_of,
)
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.engines.raw_texts import RawTextFilter, raw_text_filter
from millstream.streams.rules.event_rows import Distinct, EventRows, Places, Rows
from millstream.streams.rules.predicate_tests import Elements, Form, answer_of
from millstream.streams.rules.stage.columns import Columns
from millstream.streams.rules.stage.condition_compiler import ConditionCompiler, EventForms, Holds, ListHeld, keys_of
from millstream.streams.rules.stage.fingerprints import CacheBudget
from millstream.streams.rules.stage.groups import FieldGroup

__all__ = ["ClassPlan", "KeyCosts", "PlanContext", "Prefilter", "ReducedRule"]


_GUESS_WEIGHT: Final = 2.0
"""How many events the guess by the look of an atom counts for."""

_RARITY_PER_BYTE: Final = 0.7
"""Each further byte of a literal makes it this much rarer."""

_GUESSES: Final[dict[Op, float]] = {
    Op.MATCHES: 0.1,
    Op.CIDR: 0.05,
    Op.LESS: 0.5,
    Op.LESS_EQUAL: 0.5,
    Op.GREATER: 0.5,
    Op.GREATER_EQUAL: 0.5,
    Op.IS_NULL: 0.6,
    Op.CALL: 1.0,
}


class KeyCosts:
    """The share of events that an atom is likely true of, by a sample and by its look.

    User functions and regular expressions are not tried.
    """

    def __init__(self, sample: EventRows, questions: ConditionCompiler) -> None:
        self._sample = sample
        self._questions = questions
        self._known: dict[Predicate, float] = {}
        self._forms: dict[Form, tuple[list[tuple[Any, int]], list[tuple[Any, int]]]] = {}
        self._fields: dict[str, list[tuple[Any, int]]] = {}

    def __call__(self, predicate: Predicate) -> float:
        known = self._known.get(predicate)
        if known is None:
            known = _guess(predicate)
            if predicate.op not in (Op.CALL, Op.MATCHES):
                known = (self._true(predicate) + known * _GUESS_WEIGHT) / (self._sample.count + _GUESS_WEIGHT)
            self._known[predicate] = known
        return known

    def _true(self, predicate: Predicate) -> int:
        form, test = self._questions.of(predicate).form, self._questions.test(predicate)
        formed = self._forms.get(form)
        if formed is None:
            formed = self._forms[form] = self._forms_of(form)
        alone, lists = formed
        held = sum(times for value, times in alone if test(value))
        return held + sum(times for value, times in lists if answer_of(test, value)) if lists else held

    def _forms_of(self, form: Form) -> tuple[list[tuple[Any, int]], list[tuple[Any, int]]]:
        """The forms of single values, and those of lists."""
        formed = [(form_of(form, value), times) for value, times in self._values(form.field)]
        lists = [one for one in formed if type(one[0]) is Elements]
        return ([one for one in formed if type(one[0]) is not Elements], lists) if lists else (formed, lists)

    def _values(self, field: str) -> list[tuple[Any, int]]:
        values = self._fields.get(field)
        if values is None:
            distinct = self._sample.distinct(field)
            times = [0] * len(distinct.values)
            for code in distinct.codes.tolist():
                times[code] += 1
            values = self._fields[field] = list(zip(distinct.values, times, strict=True))
        return values


def _guess(predicate: Predicate) -> float:
    if predicate.absent is True:
        return 0.9
    if predicate.op is Op.IN:
        return min(0.002 * len(predicate.operands), 0.5)
    guess = _GUESSES.get(predicate.op)
    return _RARITY_PER_BYTE ** len(str(predicate.operands[0]).encode("utf-8", "replace")) if guess is None else guess


_WATCHED_EVENTS: Final = 200
_WATCHED_PER_ATOM: Final = 0.5
"""Events that are watched before a sieve is made: so many, and more for each atom that it would have."""

_TRIED_EVENTS: Final = 500
"""Events after which it is asked again and again whether the sieve pays."""

_MOST_PASS: Final = 0.6
"""The share of events up to which reading the others costs more than looking through the JSON of all."""


class Prefilter:
    """Looks for `atoms`, one of which must be true of an event for a rule of the class to hold.

    It begins to once enough events were watched and few of them had one, and ends where too many pass.
    """

    def __init__(self, atoms: Sequence[Predicate], places: Places) -> None:
        self._atoms = atoms
        self._places = places
        self._filter: RawTextFilter | None = None
        self._watching = bool(atoms)
        self._seen = 0
        self._passed = 0

    @property
    def is_on(self) -> bool:
        """Whether it keeps events back now."""
        return self._filter is not None

    @property
    def events_until_on(self) -> int:
        """How many events more are watched before it may begin."""
        needed = _WATCHED_EVENTS + int(_WATCHED_PER_ATOM * len(self._atoms))
        return max(0, needed - self._seen) if self._watching else 0

    def rows(self, events: EventRows) -> Rows | None:
        """The events that must be looked into; None: all."""
        if self._filter is None:
            return None
        unread = events.unread()
        if unread is None:
            return None
        passed = unread.rows[self._filter.rows(unread.raw)]
        self._seen += len(unread.rows)
        self._passed += len(passed)
        if self._seen >= _TRIED_EVENTS:
            if self._passed > self._seen * _MOST_PASS:
                self._filter = None
            self._seen = self._passed = 0
        if len(unread.rows) == events.count:
            return passed
        read = np.ones(events.count, dtype=np.bool_)
        read[unread.rows] = False
        read[passed] = True
        return np.flatnonzero(read)

    def watch(self, count: int, found: Iterable[Rows]) -> None:
        """Of so many events, those in which an atom was true."""
        if not self._watching:
            return
        passed = np.zeros(count, dtype=np.bool_)
        for rows in found:
            passed[rows] = True
        self._seen += count
        self._passed += int(np.count_nonzero(passed))
        if self.events_until_on:
            return
        self._watching = False
        if self._passed <= self._seen * _MOST_PASS:
            self._filter = raw_text_filter(self._atoms, self._places)
        self._seen = self._passed = 0


_ROW_COST: Final = 20
"""Reading a column of this many rows costs about as much as judging one event by itself."""

_FEW_ROWS: Final = 32
"""Events that are judged one by one at least."""


_SAMPLED: Final = 48
_SAMPLED_AGAIN: Final = 200
"""Events that candidates for keys are tried on, the first time and later."""

_JUDGED_IN_US: Final = 2.0
"""About what judging one rule on one event in vain costs."""

_PATIENCE: Final = 2.0
"""Keys are chosen again when what was judged in vain cost so many times what choosing did; each time twice that."""


class ReducedRule(NamedTuple):
    """What is left of a rule in a class, as a positive formula."""

    number: int
    formula: Condition


class PlanContext(NamedTuple):
    """What all plans of a stage share."""

    questions: ConditionCompiler
    budget: CacheBudget
    groups: dict[tuple[str, tuple[Predicate, ...]], FieldGroup]
    found: dict[Predicate, int]
    """Events by key atom that was found in them."""
    places: Places


class _Candidate:
    """What is asked of an event where one of the rule's keys is found. Made when one first is: most never are."""

    def __init__(self, rule: ReducedRule, keys: frozenset[Predicate], questions: ConditionCompiler) -> None:
        self.number = rule.number
        self._left = rule.formula
        self._keys = keys
        self._questions = questions

    @cached_property
    def formula(self) -> Condition:
        """What must be true beside the key."""
        parts = self._left.parts if isinstance(self._left, All) else (self._left,)
        is_key = [self._keys == set(part.parts if isinstance(part, AnyOf) else (part,)) for part in parts]
        return all_of(*(part for part, found in zip(parts, is_key, strict=True) if not found))

    @cached_property
    def holds(self) -> Holds:
        """The formula as a function."""
        return self._questions.compile(self.formula)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """What the formula asks."""
        fields: dict[str, None] = {}
        for predicate in predicates_of(self.formula):
            fields[predicate.field] = None
            if predicate.op in OF_TWO_FIELDS:
                fields[str(predicate.operands[0])] = None
        return tuple(fields)

    @cached_property
    def sure(self) -> bool:
        """Whether the rule holds wherever a key is found."""
        return self.formula == Truth(True)


class ClassPlan:
    """Rules that were reduced for a class of events, of which some are given: they help to choose keys.

    Where keys are found too often in events that their rules do not hold for, they are chosen again.
    """

    def __init__(self, rules: Sequence[ReducedRule], events: EventRows, rooms: PlanContext) -> None:
        self._rooms = rooms
        self._left = tuple(rules)
        self._choose(events, _SAMPLED)
        self._patience = _PATIENCE

    def _choose(self, events: EventRows, sampled: int) -> None:
        began_s = time.perf_counter()
        self._unkeyed: list[_Candidate] = []
        keyed: dict[str, dict[Predicate, list[_Candidate]]] = defaultdict(dict)
        # Rows from all over the batch: neighbours are alike.
        sample = events.part(np.arange(0, events.count, events.count // sampled + 1))
        cost = KeyCosts(sample, self._rooms.questions)
        for rule in self._left:
            keys = keys_of(rule.formula, cost)
            candidate = _Candidate(rule, keys[1] if keys else frozenset(), self._rooms.questions)
            if keys is None:
                self._unkeyed.append(candidate)
            else:
                for predicate in sorted(keys[1], key=str):
                    keyed[predicate.field].setdefault(predicate, []).append(candidate)
        self._groups = [self._group(field, atoms) for field, atoms in keyed.items()]
        looked_for = () if self._unkeyed else tuple(predicate for atoms in keyed.values() for predicate in atoms)
        self._sieve = Prefilter(looked_for, self._rooms.places)
        self._chosen_in_us = (time.perf_counter() - began_s) * 1e6
        self._in_vain = 0

    def _group(
        self, field: str, atoms: dict[Predicate, list[_Candidate]]
    ) -> tuple[FieldGroup, tuple[tuple[Predicate, list[_Candidate]], ...]]:
        key = field, tuple(atoms)
        group = self._rooms.groups.get(key)
        if group is None:
            questions = self._rooms.questions
            group = FieldGroup(
                field, [questions.of(predicate) for predicate in atoms], questions.watch, self._rooms.budget
            )
            self._rooms.groups[key] = group
        return group, tuple(atoms.items())

    @property
    def rules(self) -> tuple[int, ...]:
        """The numbers of the rules."""
        return tuple(rule.number for rule in self._left)

    @property
    def groups(self) -> list[FieldGroup]:
        """The groups that are looked through for keys."""
        return [group for group, _ in self._groups]

    @property
    def unkeyed_rules(self) -> int:
        """Rules that are judged on every event of the class."""
        return len(self._unkeyed)

    def evaluate(self, events: EventRows) -> list[tuple[Rows, int]]:
        """The events that each rule holds for, with its number; only rules that hold for some."""
        watched = self._sieve.events_until_on
        if 0 < watched < events.count and events.unread() is not None:
            first, rest = np.arange(watched), np.arange(watched, events.count)
            return [
                *self._evaluate(events.part(first)),
                *_map_rows(self._evaluate_prefiltered(events.part(rest)), rest),
            ]
        return self._evaluate_prefiltered(events)

    def _evaluate_prefiltered(self, events: EventRows) -> list[tuple[Rows, int]]:
        passed = self._sieve.rows(events)
        if passed is None:
            return self._evaluate(events)
        return _map_rows(self._evaluate(events.part(passed)), passed) if len(passed) else []

    def _evaluate(self, events: EventRows) -> list[tuple[Rows, int]]:
        columns = Columns(events, self._rooms.questions)
        hits = []
        candidates = self._candidates(columns)
        self._sieve.watch(events.count, (rows for _, parts in candidates.values() for rows in parts))
        for number, (rule, parts) in candidates.items():
            rows = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
            held = rows if rule.sure else self._find_matching_rows(rule, rows, columns)
            self._in_vain += len(rows) - len(held)
            if len(held):
                hits.append((held, number))
        every = np.arange(events.count)
        for rule in self._unkeyed:
            held = self._find_matching_rows(rule, every, columns)
            if len(held):
                hits.append((held, rule.number))
        if self._in_vain * _JUDGED_IN_US > self._chosen_in_us * self._patience:
            self._patience *= 2
            self._choose(events, _SAMPLED_AGAIN)
        return hits

    def _candidates(self, columns: Columns) -> dict[int, tuple[_Candidate, list[Rows]]]:
        candidates: dict[int, tuple[_Candidate, list[Rows]]] = {}
        counts = self._rooms.found
        for group, members in self._groups:
            narrowed = group.prefilter(columns.events)
            if narrowed is None:
                distinct = columns.distinct(group.field)
            else:
                distinct = columns.events.part(narrowed).distinct(group.field)
            found = group.find(distinct)
            if not found:
                continue
            for value, rows in _rows_of(found, distinct, narrowed):
                for number in found[value]:
                    predicate, rules = members[number]
                    counts[predicate] = counts.get(predicate, 0) + len(rows)
                    for rule in rules:
                        candidate = candidates.get(rule.number)
                        if candidate is None:
                            candidates[rule.number] = rule, [rows]
                        else:
                            candidate[1].append(rows)
        return candidates

    def _find_matching_rows(self, rule: _Candidate, rows: Rows, columns: Columns) -> Rows:
        unread = sum(not columns.has(field) for field in rule.fields)
        if len(rows) <= _FEW_ROWS + columns.events.count * unread // _ROW_COST:
            return np.array(self._find_one_by_one(rule, rows.tolist(), columns.forms_of), dtype=np.int64)
        return rows[columns.holds(rule.formula, rows)]

    def _find_one_by_one(self, rule: _Candidate, rows: list[int], forms_of: Callable[[int], EventForms]) -> list[int]:
        holds = rule.holds
        try:
            return [row for row in rows if holds(forms_of(row))]
        except ListHeld:
            holds = self._rooms.questions.compile_for_lists(rule.formula)
            return [row for row in rows if holds(forms_of(row))]


def _map_rows(hits: list[tuple[Rows, int]], rows: Rows) -> list[tuple[Rows, int]]:
    """Hits of a part that has these rows."""
    return [(rows[held], number) for held, number in hits]


def _rows_of(found: dict[int, Sequence[int]], distinct: Distinct, of: Rows | None) -> list[tuple[int, Rows]]:
    """The rows of each value that something was found in; `of` are the rows of the values, where they are not all."""
    if len(distinct.values) == 1:
        return [(0, np.arange(len(distinct.codes)) if of is None else of)]
    wanted = np.zeros(len(distinct.values), dtype=np.bool_)
    wanted[list(found)] = True
    rows = np.flatnonzero(wanted[distinct.codes])
    codes = distinct.codes[rows]
    order = np.argsort(codes, kind="stable")
    rows, codes = rows[order], codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    rows = rows if of is None else of[rows]
    return list(zip(codes[starts].tolist(), np.split(rows, starts[1:]), strict=True))
