"""CIDR: one look for each length of prefix that the operands have."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.streams.functions.text.networks import network_of_text
from millstream.streams.rules.engines.engine import Found, ValueForms
from millstream.streams.rules.predicate_tests import Form

__all__ = ["NetworkEngine"]


class NetworkEngine:
    """Addresses by the networks that they are in."""

    name = "prefixes"
    database_bytes = 0

    def __init__(self, form: Form, operands: Sequence[tuple[int, Sequence[str]]]) -> None:
        self._form = form
        self.atoms = len(operands)
        self._tables: dict[tuple[int, int], dict[int, list[int]]] = {}
        for atom, texts in operands:
            for text in texts:
                network = network_of_text(text)
                shift = network.max_prefixlen - network.prefixlen
                table = self._tables.setdefault((network.version, shift), {})
                table.setdefault(int(network.network_address) >> shift, []).append(atom)

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
