"""Comparisons with bounds: one search in the sorted operands says which of them hold."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from millstream.streams.rules.engines.engine import Found, ValueForms
from millstream.streams.rules.predicate_tests import Form
from millstream.streams.rules.predicates import Op

__all__ = ["RangeEngine"]


class RangeEngine:
    """The atoms of one form and one operation; operands are ordered among each other."""

    name = "sorted bounds"
    database_bytes = 0

    def __init__(self, form: Form, op: Op, operands: Sequence[tuple[int, Any]]) -> None:
        ordered = sorted(operands, key=lambda one: one[1])
        self._form = form
        self._bounds = [operand for _, operand in ordered]
        self._numbers = [atom for atom, _ in ordered]
        self._place = bisect_right if op in (Op.LESS, Op.GREATER_EQUAL) else bisect_left
        self._above = op in (Op.LESS, Op.LESS_EQUAL)
        self.atoms = len(ordered)

    def find(self, values: ValueForms, found: Found) -> None:
        for number, value in enumerate(values.forms_of(self._form)):
            # NaN is in no order with anything.
            if value is None or value != value:
                continue
            place = self._place(self._bounds, value)
            atoms = self._numbers[place:] if self._above else self._numbers[:place]
            if atoms:
                found[number] += atoms
