"""The questions of one stage, each made ready once, and positive formulas of them as Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.streams.rules.answers import Form, Question, question_of
from millstream.streams.rules.atoms import Atom
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.formulas import All, AnyOf, Formula, Not, Truth
from millstream.streams.rules.plain import FieldOf
from millstream.streams.rules.watch import Watch

__all__ = ["EventForms", "Holds", "Questions"]


class EventForms(dict[int, Any]):
    """The forms of one event's fields by the numbers that `Questions` gave them, made when they are first read."""

    __slots__ = ("_field_of", "_forms")

    def __init__(self, forms: list[Form], field_of: FieldOf) -> None:
        super().__init__()
        self._forms = forms
        self._field_of = field_of

    def __missing__(self, number: int) -> Any:
        form = self._forms[number]
        made = self[number] = form_of(form, self._field_of(form.field))
        return made


Holds = Callable[[EventForms], bool]
"""Whether a formula holds for an event."""


class Questions:
    """Atoms made ready; what a risky one does is watched."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.forms: list[Form] = []
        self._numbers: dict[Form, int] = {}
        self._questions: dict[Atom, Question] = {}
        self._tests: dict[Atom, Callable[[Any], bool | None]] = {}

    def of(self, atom: Atom) -> Question:
        """The atom, ready. Raises as `question_of` does."""
        question = self._questions.get(atom)
        if question is None:
            question = self._questions[atom] = question_of(atom)
            self._tests[atom] = self.watch.test_of(question)
        return question

    def test(self, atom: Atom) -> Callable[[Any], bool | None]:
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

    def compiled(self, formula: Formula) -> Holds:
        """A positive formula as a function."""
        match formula:
            case Atom():
                return self._asked(formula, wanted=True)
            case Not(part=Atom() as atom):
                return self._asked(atom, wanted=False)
            case All(parts=parts):
                return _every(tuple(map(self.compiled, parts)))
            case AnyOf(parts=parts):
                return _some(tuple(map(self.compiled, parts)))
            case Truth(value=value):
                held = value is True
                return lambda _event: held
            case _:
                raise ValueError(f"no positive formula: {formula}")

    def _asked(self, atom: Atom, *, wanted: bool) -> Holds:
        question = self.of(atom)
        number = self.number(question.form)
        if question.other is None:
            test = self._tests[atom]
            return lambda event: test(event[number]) is wanted
        other, absent, fits = self.number(question.other), atom.absent, question.fits

        def compared(event: EventForms) -> bool:
            left, right = event[number], event[other]
            return (absent if left is None or right is None else fits(left, right)) is wanted

        return compared


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
