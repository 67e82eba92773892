"""Simplifies conditions by known facts, and compiles them to Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millstream.streams.rules.conditions import (
    OF_WHOLE_EVENTS,
    All,
    AnyOf,
    Condition,
    Not,
    Op,
    Predicate,
    Truth,
    all_of,
    any_of,
)
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.predicate_tests import Elements, Form, PredicateTest, answer_of, predicate_test_of
from millstream.streams.rules.reference import FieldOf, any_true
from millstream.streams.rules.watch import Watch

__all__ = ["ConditionCompiler", "EventForms", "Holds", "ListHeld", "keys_of", "pins_of", "positive", "reduce_condition"]


def positive(formula: Condition, *, wanted: bool = True) -> Condition:
    """A formula that is true exactly where the given one is `wanted`, with NOT only at atoms.

    Where it holds is all that counts: unknown and false are one, so an atom in it holds where it is true, and the NOT
    of one where it is false.
    """
    match formula:
        case Predicate():
            return formula if wanted else Not(formula)
        case Truth(value=value):
            return Truth(value is wanted)
        case Not(part=part):
            return positive(part, wanted=not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            joined = all_of if isinstance(formula, All) is wanted else any_of
            return joined(*(positive(part, wanted=wanted) for part in parts))


def reduce_condition(formula: Condition, known: Mapping[Predicate, bool | None]) -> Condition:
    """What is left of a positive formula where these atoms have these answers."""
    match formula:
        case Predicate():
            return Truth(known[formula] is True) if formula in known else formula
        case Not(part=Predicate() as predicate):
            return Truth(known[predicate] is False) if predicate in known else formula
        case All(parts=parts):
            return all_of(*(reduce_condition(part, known) for part in parts))
        case AnyOf(parts=parts):
            return any_of(*(reduce_condition(part, known) for part in parts))
        case _:
            return formula


def pins_of(formula: Condition) -> dict[str, frozenset[Predicate]]:
    """For each field that a positive formula pins: its atoms IN and IS_NULL, one of which must hold for it to hold."""
    match formula:
        case Predicate(op=Op.IN | Op.IS_NULL, absent=absent) if absent is not True:
            return {formula.field: frozenset({formula})}
        case All(parts=parts):
            pins: dict[str, frozenset[Predicate]] = {}
            for part in parts:
                for field, atoms in pins_of(part).items():
                    pins[field] = min(pins.get(field, atoms), atoms, key=len)
            return pins
        case AnyOf(parts=parts):
            each = [pins_of(part) for part in parts]
            shared = set(each[0]).intersection(*each[1:]) if each else set()
            return {field: frozenset().union(*(one[field] for one in each)) for field in shared}
        case _:
            return {}


def keys_of(formula: Condition, cost: Callable[[Predicate], float]) -> tuple[float, frozenset[Predicate]] | None:
    """Atoms, one of which must be true for a positive formula to hold, cheapest by the sum of their costs.

    None where there are none: the formula may hold where nothing is found.
    """
    match formula:
        case Predicate(op=op) if op in OF_WHOLE_EVENTS:
            return None
        case Predicate():
            return cost(formula), frozenset({formula})
        case All(parts=parts):
            keyed = [found for part in parts if (found := keys_of(part, cost)) is not None]
            return min(keyed, key=lambda found: found[0], default=None)
        case AnyOf(parts=parts):
            all_keyed = [keys_of(part, cost) for part in parts]
            if any(found is None for found in all_keyed):
                return None
            atoms = frozenset().union(*(found[1] for found in all_keyed if found is not None))
            return sum(map(cost, atoms)), atoms
        case _:
            return None


class ListHeld(Exception):
    """A field holds a list, of which each element is to be asked."""


class EventForms(dict[int, Any]):
    """The forms of one event's fields by the numbers that `ConditionCompiler` gave them, made when they are first read.

    That of a list raises ListHeld, but where it is asked for by `of`.
    """

    __slots__ = ("_field_of", "_forms", "_lists")

    def __init__(self, forms: list[Form], field_of: FieldOf) -> None:
        super().__init__()
        self._forms = forms
        self._field_of = field_of
        self._lists: dict[int, Elements] | None = None

    def __missing__(self, number: int) -> Any:
        if self._lists and number in self._lists:
            raise ListHeld
        form = self._forms[number]
        made = form_of(form, self._field_of(form.field))
        if type(made) is Elements:
            self._lists = {**(self._lists or {}), number: made}
            raise ListHeld
        self[number] = made
        return made

    def of(self, number: int) -> Any:
        """The form, or `Elements`."""
        try:
            return self[number]
        except ListHeld:
            return (self._lists or {})[number]


Holds = Callable[[EventForms], bool]
"""Whether a formula holds for an event."""


class ConditionCompiler:
    """Atoms made ready; what a risky one does is watched."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.forms: list[Form] = []
        self._numbers: dict[Form, int] = {}
        self._questions: dict[Predicate, PredicateTest] = {}
        self._tests: dict[Predicate, Callable[[Any], bool | None]] = {}
        self._of_lists: dict[Condition, Holds] = {}

    def of(self, predicate: Predicate) -> PredicateTest:
        """The atom, ready. Raises as `predicate_test_of` does."""
        question = self._questions.get(predicate)
        if question is None:
            question = self._questions[predicate] = predicate_test_of(predicate)
            self._tests[predicate] = self.watch.test_of(question)
        return question

    def test(self, predicate: Predicate) -> Callable[[Any], bool | None]:
        """The atom's answer to its form, not for one of two fields; None where asking it failed."""
        self.of(predicate)
        return self._tests[predicate]

    def number(self, form: Form) -> int:
        """The form's number."""
        number = self._numbers.get(form)
        if number is None:
            number = self._numbers[form] = len(self.forms)
            self.forms.append(form)
        return number

    def compile(self, formula: Condition) -> Holds:
        """A positive formula as a function, which raises ListHeld for an event whose lists it would have to look at."""
        return self._compile(formula, self._compile_test)

    def compile_for_lists(self, formula: Condition) -> Holds:
        """The same for all events, slower; made once."""
        holds = self._of_lists.get(formula)
        if holds is None:
            holds = self._of_lists[formula] = self._compile(formula, self._compile_list_test)
        return holds

    def _compile(self, formula: Condition, asked: Callable[[Predicate, bool], Holds]) -> Holds:
        match formula:
            case Predicate():
                return asked(formula, True)
            case Not(part=Predicate() as predicate):
                return asked(predicate, False)
            case All(parts=parts):
                return _every(tuple(self._compile(part, asked) for part in parts))
            case AnyOf(parts=parts):
                return _some(tuple(self._compile(part, asked) for part in parts))
            case Truth(value=value):
                held = value is True
                return lambda _event: held
            case _:
                raise ValueError(f"no positive formula: {formula}")

    def _compile_test(self, predicate: Predicate, wanted: bool) -> Holds:
        question = self.of(predicate)
        number = self.number(question.form)
        if question.other is None:
            test = self._tests[predicate]
            return lambda event: test(event[number]) is wanted
        other, absent, fits = self.number(question.other), predicate.absent, question.fits

        def compare(event: EventForms) -> bool:
            left, right = event[number], event[other]
            return (absent if left is None or right is None else fits(left, right)) is wanted

        return compare

    def _compile_list_test(self, predicate: Predicate, wanted: bool) -> Holds:
        question = self.of(predicate)
        number = self.number(question.form)
        if question.other is None:
            test = self._tests[predicate]
            return lambda event: answer_of(test, event.of(number)) is wanted
        other, absent, fits = self.number(question.other), predicate.absent, question.fits

        def compare(left: Any, right: Any) -> bool | None:
            if type(left) is Elements:
                return any_true(compare(one, right) for one in left)
            if left is None or right is None:
                return absent
            if type(right) is Elements:
                return any(fits(left, one) for one in right if one is not None)
            return fits(left, right)

        return lambda event: compare(event.of(number), event.of(other)) is wanted


def _every(parts: tuple[Holds, ...]) -> Holds:
    def holds(event: EventForms) -> bool:
        for part in parts:  # noqa: SIM110 - a generator costs more than the atoms
            if not part(event):
                return False
        return True

    return holds


def _some(parts: tuple[Holds, ...]) -> Holds:
    def holds(event: EventForms) -> bool:
        for part in parts:  # noqa: SIM110 - a generator costs more than the atoms
            if part(event):
                return True
        return False

    return holds
