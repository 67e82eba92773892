"""The rule stage: evaluates all rules of a set over a batch of events at about the cost of one."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import numpy as np

from millstream.streams.rules.conditions import Condition, Predicate, Truth, predicates_of
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.event_rows import EventRows, Places, Rows
from millstream.streams.rules.predicate_tests import Elements
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.class_plan import PlanContext
from millstream.streams.rules.stage.class_plans import ClassPlans
from millstream.streams.rules.stage.condition_compiler import ConditionCompiler, positive
from millstream.streams.rules.stage.fingerprints import CacheBudget
from millstream.streams.rules.stage.stage_statistics import (
    QuarantinedRule,
    StageExplanation,
    StageStatistics,
    explain_stage,
    statistics_by_field,
)
from millstream.streams.rules.watch import DEFAULT_ALLOWANCE_MS, Failure, Watch

__all__ = ["DEFAULT_CACHE_MB", "QuarantinedRule", "RuleMatches", "RuleStage"]

DEFAULT_CACHE_MB: Final = 64
"""Memory of the cache of values of earlier batches."""

_EVIDENCE_CHARACTERS: Final = 2_048
"""Of the event that a rule was quarantined for."""

Numbers = np.ndarray[Any, np.dtype[np.int32]]


class RuleMatches(NamedTuple):
    """Which rules hold for which events: pairs of a row and the number of a rule, by row, then by rule."""

    rows: Numbers
    rules: Numbers


class RuleStage:
    """Judges batches of events by a rule set: for every enabled rule what `plain.judge` says is true.

    Two limits: a regular expression that hyperscan does not take exactly sees the first 65,536 characters of a text,
    and a rule that raises or takes longer than `allowance_ms` over a batch is quarantined: it hits nothing in that
    batch and after it. One stage is for one thread.
    """

    def __init__(
        self, rule_set: RuleSet, *, cache_mb: int = DEFAULT_CACHE_MB, allowance_ms: int = DEFAULT_ALLOWANCE_MS
    ) -> None:
        self.rule_set = rule_set
        self._watch = Watch(allowance_ms)
        self._rooms = PlanContext(
            ConditionCompiler(self._watch), CacheBudget(cache_mb << 20), {}, {}, Places(rule_set.paths)
        )
        self._formulas: dict[int, Condition] = {}
        self._rules_of: dict[Predicate, list[int]] = {}
        self._quarantined: dict[int, QuarantinedRule] = {}
        self._handled: set[Predicate] = set()
        self._hits_of: Counter[int] = Counter()
        self._events = 0
        for number, rule in enumerate(rule_set.rules):
            if rule.enabled:
                self._take(number, rule.condition)
        self._plans = ClassPlans(self._formulas, self._rooms)

    @property
    def quarantined(self) -> tuple[QuarantinedRule, ...]:
        """The rules that are judged no more, in the order in which they fell."""
        return tuple(self._quarantined.values())

    @property
    def class_fields(self) -> tuple[str, ...]:
        """The fields that are read of every event."""
        return tuple(field.field for field in self._plans.fields)

    def evaluate(self, events: EventRows) -> RuleMatches:
        """The hits of a batch. What a rule does wrong never raises: see `quarantined`."""
        found: list[tuple[Rows, int]] = []
        with self._watch:
            for plan, rows in self._plans.parts(events):
                verdicts = plan.evaluate(events if rows is None else events.part(rows))
                found += verdicts if rows is None else [(rows[held], number) for held, number in verdicts]
        fresh = [failure for predicate, failure in self._watch.failures.items() if predicate not in self._handled]
        if fresh:
            self._quarantine(fresh, events)
            found = [hit for hit in found if hit[1] not in self._quarantined]
        self._events += events.count
        for held, number in found:
            self._hits_of[number] += len(held)
        return _sort_matches(found)

    def explain(self) -> StageExplanation:
        """How the stage judges, for EXPLAIN. Compiles all atoms: takes seconds for thousands."""
        return explain_stage(self._formulas, self.class_fields, self._rooms.questions)

    def statistics(self) -> StageStatistics:
        """What the stage did so far, and what is known of its values."""
        rules = self.rule_set.rules
        return StageStatistics(
            events=self._events,
            rules=len(self._formulas),
            atoms=len(self._rules_of),
            shared_atoms=sum(len(numbers) > 1 for numbers in self._rules_of.values()),
            classes=self._plans.classes,
            groups=statistics_by_field(self._rooms.groups.values()),
            cache_bytes=self._rooms.budget.used_bytes,
            hits={rules[number].id: self._hits_of[number] for number in self._formulas},
            found={str(predicate): count for predicate, count in self._rooms.found.items()},
            quarantined=self.quarantined,
        )

    def _take(self, number: int, condition: Condition) -> None:
        formula = positive(condition)
        atoms = dict.fromkeys(predicates_of(formula))
        try:
            for predicate in atoms:
                self._rooms.questions.of(predicate)
        except Exception as error:  # noqa: BLE001 - importing a user's function may raise anything
            rule_id = self.rule_set.rules[number].id
            self._quarantined[number] = QuarantinedRule(rule_id, f"{type(error).__name__}: {error}")
            return
        for predicate in atoms:
            self._rules_of.setdefault(predicate, []).append(number)
        if formula != Truth(False):
            self._formulas[number] = formula

    def _quarantine(self, failures: list[Failure], events: EventRows) -> None:
        for failure in failures:
            self._handled.add(failure.predicate)
            evidence = self._evidence(failure, events)
            for number in self._rules_of.get(failure.predicate, ()):
                self._formulas.pop(number, None)
                rule_id = self.rule_set.rules[number].id
                reason = f"{failure.predicate}: {failure.reason}"
                self._quarantined.setdefault(number, QuarantinedRule(rule_id, reason, evidence))
        groups = self._rooms.groups
        for key in [key for key in groups if self._handled.intersection(key[1])]:
            del groups[key]
        self._plans = ClassPlans(self._formulas, self._rooms)

    def _evidence(self, failure: Failure, events: EventRows) -> str:
        """The first event of the batch with the value at which an atom failed."""
        form = self._rooms.questions.of(failure.predicate).form
        distinct = events.distinct(failure.predicate.field)
        for code, value in enumerate(distinct.values):
            formed = form_of(form, value)
            if formed == failure.value or (type(formed) is Elements and failure.value in formed):
                row = int(np.flatnonzero(distinct.codes == code)[0])
                return events.text(row)[:_EVIDENCE_CHARACTERS]
        return ""


def _sort_matches(found: list[tuple[Rows, int]]) -> RuleMatches:
    if not found:
        return RuleMatches(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
    rows = np.concatenate([held for held, _ in found])
    rules = np.repeat([number for _, number in found], [len(held) for held, _ in found])
    order = np.lexsort((rules, rows))
    return RuleMatches(rows[order].astype(np.int32), rules[order].astype(np.int32))
