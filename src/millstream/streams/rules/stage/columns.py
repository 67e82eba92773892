"""Evaluates formulas over many events: atoms on distinct values, the rest in numpy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from millstream.streams.rules.conditions import OF_WHOLE_EVENTS, All, AnyOf, Condition, Not, Predicate, Truth
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.event_rows import Distinct, EventRows, Rows
from millstream.streams.rules.predicate_tests import Form, answer_of
from millstream.streams.rules.stage.condition_compiler import ConditionCompiler, EventForms

__all__ = ["Columns"]

_NOT_ASKED: Final = 2
_UNKNOWN: Final = -1

Held = np.ndarray[Any, np.dtype[np.bool_]]
Answers = np.ndarray[Any, np.dtype[np.int8]]


class Columns:
    """The fields of some events, read and distinguished once each, and what the atoms said of them."""

    def __init__(self, events: EventRows, questions: ConditionCompiler) -> None:
        self.events = events
        self._questions = questions
        self._distinct: dict[str, Distinct] = {}
        self._answers: dict[Predicate, Answers] = {}
        self._formed: dict[Form, dict[int, Any]] = {}
        self._forms: dict[int, EventForms] = {}

    def distinct(self, field: str) -> Distinct:
        """The field's different values."""
        found = self._distinct.get(field)
        if found is None:
            found = self._distinct[field] = self.events.distinct(field)
        return found

    def has(self, field: str) -> bool:
        """Whether the field was read already."""
        return field in self._distinct

    def forms_of(self, row: int) -> EventForms:
        """The forms of one event."""
        forms = self._forms.get(row)
        if forms is None:
            forms = self._forms[row] = EventForms(self._questions.forms, self.events.field_of(row))
        return forms

    def holds(self, formula: Condition, rows: Rows) -> Held:
        """For each of the rows whether a positive formula holds."""
        match formula:
            case Predicate():
                return np.asarray(self._answer(formula, rows) == 1)
            case Not(part=Predicate() as predicate):
                return np.asarray(self._answer(predicate, rows) == 0)
            case All(parts=parts):
                held = np.ones(len(rows), dtype=np.bool_)
                for part in parts:
                    left = np.flatnonzero(held)
                    if not len(left):
                        break
                    held[left] = self.holds(part, rows[left])
                return held
            case AnyOf(parts=parts):
                held = np.zeros(len(rows), dtype=np.bool_)
                for part in parts:
                    left = np.flatnonzero(~held)
                    if not len(left):
                        break
                    held[left] = self.holds(part, rows[left])
                return held
            case Truth(value=value):
                return np.full(len(rows), value is True)
            case _:
                raise ValueError(f"no positive formula: {formula}")

    def _answer(self, predicate: Predicate, rows: Rows) -> Answers:
        if predicate.op in OF_WHOLE_EVENTS:
            holds = self._questions.compile_for_lists(predicate)
            fails = self._questions.compile_for_lists(Not(predicate))
            forms = [self.forms_of(row) for row in rows.tolist()]
            every = [1 if holds(form) else 0 if fails(form) else _UNKNOWN for form in forms]
            return np.array(every, dtype=np.int8)
        distinct = self.distinct(predicate.field)
        answers = self._answers.get(predicate)
        if answers is None:
            answers = self._answers[predicate] = np.full(len(distinct.values), _NOT_ASKED, dtype=np.int8)
        codes = distinct.codes[rows]
        results = answers[codes]
        if (results == _NOT_ASKED).any():
            form, test = self._questions.of(predicate).form, self._questions.test(predicate)
            formed = self._formed.setdefault(form, {})
            for code in np.unique(codes[results == _NOT_ASKED]).tolist():
                if code not in formed:
                    formed[code] = form_of(form, distinct.values[code])
                answer = answer_of(test, formed[code])
                answers[code] = _UNKNOWN if answer is None else answer
            results = answers[codes]
        return results
