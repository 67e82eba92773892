"""Classes of events: those that answer the same to what most rules pin (a channel, an event id)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from millstream.streams.rules.atoms import Atom
from millstream.streams.rules.engines.engine import form_of
from millstream.streams.rules.stage.answers import said_of
from millstream.streams.rules.stage.event_rows import EventRows, Rows
from millstream.streams.rules.stage.questions import Questions

__all__ = ["ClassField", "class_fields"]

Pins = dict[str, frozenset[Atom]]

_MOST_FIELDS: Final = 3
"""Fields that part events into classes, at most."""

_LEAST_RULES: Final = 8
_LEAST_SHARE: Final = 0.1
"""Rules, and share of all rules, that must pin a field for it to part events."""

_RULES_PER_ATOM: Final = 3
"""How many rules must pin a field for each atom in which they do; with fewer, a look into a table finds them sooner."""

_MOST_KNOWN: Final = 65_536
"""Values of a class field whose class is remembered."""


def class_fields(pins: Sequence[Pins]) -> list[str]:
    """The fields worth parting events by, for rules with these pins."""
    rules = Counter(field for one in pins for field in one)
    atoms: dict[str, set[Atom]] = {}
    for one in pins:
        for field, pinned in one.items():
            atoms.setdefault(field, set()).update(pinned)
    least = max(_LEAST_RULES, len(pins) * _LEAST_SHARE)
    worth = [
        field for field, count in rules.most_common() if count >= least and count >= _RULES_PER_ATOM * len(atoms[field])
    ]
    return worth[:_MOST_FIELDS]


class ClassField:
    """A field that parts events, and the atoms about it that rules ask."""

    def __init__(self, field: str, atoms: Sequence[Atom], questions: Questions) -> None:
        self.field = field
        self._asked = [(atom, questions.of(atom).form, questions.test(atom)) for atom in atoms]
        self._codes: dict[tuple[bool | None, ...], int] = {}
        self._known: dict[Hashable, int] = {}
        self.answers: list[dict[Atom, bool | None]] = []
        """For each code what its atoms say."""

    def codes(self, events: EventRows) -> Rows:
        """For each event a small number, the same where all atoms say the same."""
        distinct = events.distinct(self.field)
        known = self._known
        if len(known) > _MOST_KNOWN:
            known.clear()
        of_values = np.empty(len(distinct.values), dtype=np.int64)
        for number, (key, value) in enumerate(zip(distinct.keys, distinct.values, strict=True)):
            code = known.get(key)
            if code is None:
                code = known[key] = self.code(value)
            of_values[number] = code
        return of_values[distinct.codes]

    def code(self, value: Any) -> int:
        """The number of one value."""
        said = tuple(said_of(test, form_of(form, value)) for _, form, test in self._asked)
        code = self._codes.get(said)
        if code is None:
            code = self._codes[said] = len(self.answers)
            self.answers.append({atom: one for (atom, _, _), one in zip(self._asked, said, strict=True)})
        return code
