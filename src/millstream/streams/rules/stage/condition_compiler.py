"""The questions of one stage, each made ready once, and positive formulas of them as Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Truth
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.predicate_tests import Elements, Form, PredicateTest, answer_of, predicate_test_of
from millstream.streams.rules.predicates import Predicate
from millstream.streams.rules.reference import FieldOf, any_true
from millstream.streams.rules.watch import Watch

__all__ = ["ConditionCompiler", "EventForms", "Holds", "ListHeld"]


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

    def of(self, atom: Predicate) -> PredicateTest:
        """The atom, ready. Raises as `predicate_test_of` does."""
        question = self._questions.get(atom)
        if question is None:
            question = self._questions[atom] = predicate_test_of(atom)
            self._tests[atom] = self.watch.test_of(question)
        return question

    def test(self, atom: Predicate) -> Callable[[Any], bool | None]:
        """The atom's answer to its form, not for one of two fields; None where asking it failed."""
        self.of(atom)
        return self._tests[atom]

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
            case Not(part=Predicate() as atom):
                return asked(atom, False)
            case All(parts=parts):
                return _every(tuple(self._compile(part, asked) for part in parts))
            case AnyOf(parts=parts):
                return _some(tuple(self._compile(part, asked) for part in parts))
            case Truth(value=value):
                held = value is True
                return lambda _event: held
            case _:
                raise ValueError(f"no positive formula: {formula}")

    def _compile_test(self, atom: Predicate, wanted: bool) -> Holds:
        question = self.of(atom)
        number = self.number(question.form)
        if question.other is None:
            test = self._tests[atom]
            return lambda event: test(event[number]) is wanted
        other, absent, fits = self.number(question.other), atom.absent, question.fits

        def compare(event: EventForms) -> bool:
            left, right = event[number], event[other]
            return (absent if left is None or right is None else fits(left, right)) is wanted

        return compare

    def _compile_list_test(self, atom: Predicate, wanted: bool) -> Holds:
        question = self.of(atom)
        number = self.number(question.form)
        if question.other is None:
            test = self._tests[atom]
            return lambda event: answer_of(test, event.of(number)) is wanted
        other, absent, fits = self.number(question.other), atom.absent, question.fits

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
