"""The interface of engines: input values and matches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from millstream.streams.rules.predicate_tests import Elements, Form, FormKind
from millstream.streams.rules.reference import elements

__all__ = ["Found", "PredicateEngine", "ValueForms", "form_of"]

Found = defaultdict[int, list[int]]
"""For the number of a value the numbers of the atoms that are true of it; only values with any."""


class ValueForms:
    """Different values of one field, none of them None, and their forms, each made once."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.raw = values
        self._forms: dict[Form, list[Any]] = {}

    def forms_of(self, form: Form) -> list[Any]:
        """The values as the form says; None for one that has no such form."""
        made = self._forms.get(form)
        if made is None:
            made = self._forms[form] = self._make(form)
        return made

    def _make(self, form: Form) -> list[Any]:
        if form.kind is FormKind.RAW:
            return list(self.raw)
        if form.kind is FormKind.TEXT and not form.steps and set(map(type, self.raw)) == {str}:
            return list(map(str.lower, self.raw)) if form.lower else list(self.raw)
        return [form_of(form, value) for value in self.raw]


def form_of(form: Form, value: Any) -> Any:
    """The form of a value; one that cannot be written as JSON is compared as Python shows it."""
    if type(value) is not str and isinstance(value, list) and not form.whole_lists:
        return Elements(form_of(form, one) for one in elements(value))
    try:
        return form.of(value)
    except (TypeError, ValueError):
        return form.of(repr(value))


class PredicateEngine(Protocol):
    """Finds the true ones of its atoms."""

    @property
    def name(self) -> str:
        """What finds them, for EXPLAIN."""

    @property
    def atoms(self) -> int:
        """How many atoms it answers for."""

    @property
    def database_bytes(self) -> int:
        """Memory of what was compiled."""

    def find(self, values: ValueForms, found: Found) -> None:
        """Adds to `found` what is true of the values."""
