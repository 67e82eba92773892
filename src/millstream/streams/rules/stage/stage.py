"""The rule stage: all rules of a set over a batch of events, at about the price of one."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import numpy as np

from millstream.streams.rules.answers import Elements
from millstream.streams.rules.atoms import Atom
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.event_rows import EventRows, Places, Rows
from millstream.streams.rules.formulas import Formula, Truth, atoms_of
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.class_plan import PlanRooms
from millstream.streams.rules.stage.class_plans import ClassPlans
from millstream.streams.rules.stage.explained import Explained, Quarantined, StageStatistics, explained, grouped
from millstream.streams.rules.stage.fingerprints import CacheBudget
from millstream.streams.rules.stage.questions import Questions
from millstream.streams.rules.stage.reduced import positive
from millstream.streams.rules.watch import DEFAULT_ALLOWANCE_MS, Failure, Watch

__all__ = ["DEFAULT_CACHE_MB", "Hits", "Quarantined", "RuleStage"]

DEFAULT_CACHE_MB: Final = 64
"""Memory of the cache of values of earlier batches."""

_EVIDENCE_CHARACTERS: Final = 2_048
"""Of the event that a rule was quarantined for."""

Numbers = np.ndarray[Any, np.dtype[np.int32]]


class Hits(NamedTuple):
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
        self._rooms = PlanRooms(Questions(self._watch), CacheBudget(cache_mb << 20), {}, {}, Places(rule_set.paths))
        self._formulas: dict[int, Formula] = {}
        self._rules_of: dict[Atom, list[int]] = {}
        self._quarantined: dict[int, Quarantined] = {}
        self._handled: set[Atom] = set()
        self._hits_of: Counter[int] = Counter()
        self._events = 0
        for number, rule in enumerate(rule_set.rules):
            if rule.enabled:
                self._take(number, rule.condition)
        self._plans = ClassPlans(self._formulas, self._rooms)

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The rules that are judged no more, in the order in which they fell."""
        return tuple(self._quarantined.values())

    @property
    def class_fields(self) -> tuple[str, ...]:
        """The fields that are read of every event."""
        return tuple(field.field for field in self._plans.fields)

    def judge(self, events: EventRows) -> Hits:
        """The hits of a batch. What a rule does wrong never raises: see `quarantined`."""
        found: list[tuple[Rows, int]] = []
        with self._watch:
            for plan, rows in self._plans.parts(events):
                judged = plan.judge(events if rows is None else events.part(rows))
                found += judged if rows is None else [(rows[held], number) for held, number in judged]
        fresh = [failure for atom, failure in self._watch.failures.items() if atom not in self._handled]
        if fresh:
            self._quarantine(fresh, events)
            found = [hit for hit in found if hit[1] not in self._quarantined]
        self._events += events.count
        for held, number in found:
            self._hits_of[number] += len(held)
        return _sorted(found)

    def explain(self) -> Explained:
        """How the stage judges, for EXPLAIN. Compiles all atoms: takes seconds for thousands."""
        return explained(self._formulas, self.class_fields, self._rooms.questions)

    def statistics(self) -> StageStatistics:
        """What the stage did so far, and what is known of its values."""
        rules = self.rule_set.rules
        return StageStatistics(
            events=self._events,
            rules=len(self._formulas),
            atoms=len(self._rules_of),
            shared_atoms=sum(len(numbers) > 1 for numbers in self._rules_of.values()),
            classes=self._plans.classes,
            groups=grouped(self._rooms.groups.values()),
            cache_bytes=self._rooms.budget.used_bytes,
            hits={rules[number].id: self._hits_of[number] for number in self._formulas},
            found={str(atom): count for atom, count in self._rooms.found.items()},
            quarantined=self.quarantined,
        )

    def _take(self, number: int, condition: Formula) -> None:
        formula = positive(condition)
        atoms = dict.fromkeys(atoms_of(formula))
        try:
            for atom in atoms:
                self._rooms.questions.of(atom)
        except Exception as error:  # noqa: BLE001 - importing a user's function may raise anything
            rule_id = self.rule_set.rules[number].id
            self._quarantined[number] = Quarantined(rule_id, f"{type(error).__name__}: {error}")
            return
        for atom in atoms:
            self._rules_of.setdefault(atom, []).append(number)
        if formula != Truth(False):
            self._formulas[number] = formula

    def _quarantine(self, failures: list[Failure], events: EventRows) -> None:
        for failure in failures:
            self._handled.add(failure.atom)
            evidence = self._evidence(failure, events)
            for number in self._rules_of.get(failure.atom, ()):
                self._formulas.pop(number, None)
                rule_id = self.rule_set.rules[number].id
                reason = f"{failure.atom}: {failure.reason}"
                self._quarantined.setdefault(number, Quarantined(rule_id, reason, evidence))
        groups = self._rooms.groups
        for key in [key for key in groups if self._handled.intersection(key[1])]:
            del groups[key]
        self._plans = ClassPlans(self._formulas, self._rooms)

    def _evidence(self, failure: Failure, events: EventRows) -> str:
        """The first event of the batch with the value at which an atom failed."""
        form = self._rooms.questions.of(failure.atom).form
        distinct = events.distinct(failure.atom.field)
        for code, value in enumerate(distinct.values):
            formed = form_of(form, value)
            if formed == failure.value or (type(formed) is Elements and failure.value in formed):
                row = int(np.flatnonzero(distinct.codes == code)[0])
                return events.text(row)[:_EVIDENCE_CHARACTERS]
        return ""


def _sorted(found: list[tuple[Rows, int]]) -> Hits:
    if not found:
        return Hits(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
    rows = np.concatenate([held for held, _ in found])
    rules = np.repeat([number for _, number in found], [len(held) for held, _ in found])
    order = np.lexsort((rules, rows))
    return Hits(rows[order].astype(np.int32), rules[order].astype(np.int32))
