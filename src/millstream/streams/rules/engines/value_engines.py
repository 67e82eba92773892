"""Engines for value predicates: equality, IN, comparisons, and CIDR."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from millstream.streams.functions.text.networks import network_of_text
from millstream.streams.rules.conditions import Op
from millstream.streams.rules.engines.engine import Found, ValueForms
from millstream.streams.rules.predicate_tests import Form

__all__ = ["EachEngine", "NetworkEngine", "RangeEngine", "SetEngine"]


class EachEngine:
    """Asks every atom about every value."""

    name = "one by one"
    database_bytes = 0

    def __init__(self, asked: Sequence[tuple[int, Form, Callable[[Any], bool | None]]]) -> None:
        self._asked = asked

    @property
    def atoms(self) -> int:
        return len(self._asked)

    def find(self, values: ValueForms, found: Found) -> None:
        for predicate, form, ask in self._asked:
            for number, formed in enumerate(values.forms_of(form)):
                if ask(formed):
                    found[number].append(predicate)


class SetEngine:
    """Texts or numbers of one form, by the operands that they equal."""

    name = "table"
    database_bytes = 0

    def __init__(self, form: Form, operands: Sequence[tuple[int, Sequence[Any]]]) -> None:
        self._form = form
        self.atoms = len(operands)
        table: dict[Any, dict[int, None]] = {}
        for predicate, values in operands:
            for value in values:
                table.setdefault(value, {})[predicate] = None
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


class RangeEngine:
    """The atoms of one form and one operation; operands are ordered among each other."""

    name = "sorted bounds"
    database_bytes = 0

    def __init__(self, form: Form, op: Op, operands: Sequence[tuple[int, Any]]) -> None:
        ordered = sorted(operands, key=lambda one: one[1])
        self._form = form
        self._bounds = [operand for _, operand in ordered]
        self._numbers = [predicate for predicate, _ in ordered]
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


class NetworkEngine:
    """Addresses by the networks that they are in."""

    name = "prefixes"
    database_bytes = 0

    def __init__(self, form: Form, operands: Sequence[tuple[int, Sequence[str]]]) -> None:
        self._form = form
        self.atoms = len(operands)
        self._tables: dict[tuple[int, int], dict[int, list[int]]] = {}
        for predicate, texts in operands:
            for text in texts:
                network = network_of_text(text)
                shift = network.max_prefixlen - network.prefixlen
                table = self._tables.setdefault((network.version, shift), {})
                table.setdefault(int(network.network_address) >> shift, []).append(predicate)

    def find(self, values: ValueForms, found: Found) -> None:
        for number, address in enumerate(values.forms_of(self._form)):
            if address is None:
                continue
            bits = int(address)
            atoms: dict[int, None] = {}
            for (version, shift), table in self._tables.items():
                if version == address.version:
                    atoms.update(dict.fromkeys(table.get(bits >> shift, ())))
            if atoms:
                found[number] += atoms
