"""IN: one look into a table of all operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.streams.rules.engines.engine import Found, ValueForms
from millstream.streams.rules.predicate_tests import Form

__all__ = ["SetEngine"]


class SetEngine:
    """Texts or numbers of one form, by the operands that they equal."""

    name = "table"
    database_bytes = 0

    def __init__(self, form: Form, operands: Sequence[tuple[int, Sequence[Any]]]) -> None:
        self._form = form
        self.atoms = len(operands)
        table: dict[Any, dict[int, None]] = {}
        for atom, values in operands:
            for value in values:
                table.setdefault(value, {})[atom] = None
        self._table = {value: list(atoms) for value, atoms in table.items()}
        self._operands = frozenset(self._table)

    def find(self, values: ValueForms, found: Found) -> None:
        formed = values.forms_of(self._form)
        if self._operands.isdisjoint(formed):
            return
        for number, value in enumerate(formed):
            atoms = self._table.get(value)
            if atoms is not None:
                found[number] += atoms
