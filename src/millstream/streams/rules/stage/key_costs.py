"""How often an atom is likely to be true: rare ones make good keys."""

from __future__ import annotations

from typing import Any, Final

from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.event_rows import EventRows
from millstream.streams.rules.predicate_tests import Elements, Form, answer_of
from millstream.streams.rules.predicates import Op, Predicate
from millstream.streams.rules.stage.condition_compiler import ConditionCompiler

__all__ = ["KeyCosts"]

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

    def __call__(self, atom: Predicate) -> float:
        known = self._known.get(atom)
        if known is None:
            known = _guess(atom)
            if atom.op not in (Op.CALL, Op.MATCHES):
                known = (self._true(atom) + known * _GUESS_WEIGHT) / (self._sample.count + _GUESS_WEIGHT)
            self._known[atom] = known
        return known

    def _true(self, atom: Predicate) -> int:
        form, test = self._questions.of(atom).form, self._questions.test(atom)
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


def _guess(atom: Predicate) -> float:
    if atom.absent is True:
        return 0.9
    if atom.op is Op.IN:
        return min(0.002 * len(atom.operands), 0.5)
    guess = _GUESSES.get(atom.op)
    return _RARITY_PER_BYTE ** len(str(atom.operands[0]).encode("utf-8", "replace")) if guess is None else guess
