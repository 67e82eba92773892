"""Atoms that are asked one by one: few of a kind, user functions, and what no other engine takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.streams.rules.engines.engine import Found, ValueForms
from millstream.streams.rules.predicate_tests import Form

__all__ = ["EachEngine"]


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
        for atom, form, ask in self._asked:
            for number, formed in enumerate(values.forms_of(form)):
                if ask(formed):
                    found[number].append(atom)
