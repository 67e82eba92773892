"""Regular expressions: hyperscan says which may match, and `re` has the last word where hyperscan is not exact."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.streams.rules.answers import Form, Question
from millstream.streams.rules.engines.databases import Database, RefusedError
from millstream.streams.rules.engines.engine import Found, Values
from millstream.streams.rules.engines.pattern_forms import HyperscanForm, hyperscan_forms

__all__ = ["Expression", "PatternEngine"]


class Expression(NamedTuple):
    """An atom's number in its group, what it asks, and its test by `re`."""

    number: int
    question: Question
    ask: Callable[[Any], bool | None]

    @property
    def source(self) -> tuple[str, int]:
        """The expression and its flags."""
        atom = self.question.atom
        return str(atom.operands[0]), int(re.IGNORECASE) if atom.caseless else 0


class PatternEngine:
    """The expressions of one form of a field's texts.

    Texts of ASCII alone have a database of their own, in which nearly every expression is exact and needs no `re`.
    """

    name = "hyperscan expressions"

    def __init__(self, form: Form, expressions: Sequence[Expression]) -> None:
        self._form = form
        self._expressions = expressions
        self._ascii = _Scanner(expressions, ascii_only=True)
        self._wide: _Scanner | None = None
        self.atoms = len(expressions)

    @property
    def refused(self) -> int:
        """Expressions that `re` alone looks for."""
        return len(self._ascii.refused)

    @property
    def database_bytes(self) -> int:
        return self._ascii.database_bytes + (self._wide.database_bytes if self._wide else 0)

    def find(self, values: Values, found: Found) -> None:
        for number, text in enumerate(values.formed(self._form)):
            atoms = self._ascii.true_of(text, text.encode()) if text.isascii() else self._beyond_ascii(text)
            if atoms:
                found[number] += atoms

    def _beyond_ascii(self, text: str) -> list[int]:
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            return [one.number for one in self._expressions if one.ask(text)]
        if self._wide is None:
            self._wide = _Scanner(self._expressions, ascii_only=False)
        return self._wide.true_of(text, encoded)


class _Scanner:
    """A database of expressions, and those that hyperscan refused."""

    def __init__(self, expressions: Sequence[Expression], *, ascii_only: bool) -> None:
        forms = [(one, hyperscan_forms(*one.source, ascii_only=ascii_only)) for one in expressions]
        self.refused: list[Expression] = []
        self._database: Database | None = None
        taken = [(one, some[0]) for one, some in forms]
        try:
            self._database = _database([form for _, form in taken], ascii_only)
        except RefusedError:
            taken = []
            for one, some in forms:
                form = next((form for form in some if _takes(form, ascii_only)), None)
                if form is None:
                    self.refused.append(one)
                else:
                    taken.append((one, form))
            self._database = _database([form for _, form in taken], ascii_only) if taken else None
        self._taken = [(one, form.exact) for one, form in taken]

    @property
    def database_bytes(self) -> int:
        return self._database.size_bytes if self._database else 0

    def true_of(self, text: str, encoded: bytes) -> list[int]:
        """The atoms that are true of the text."""
        atoms = [one.number for one in self.refused if one.ask(text)]
        if self._database is not None:
            for place, _ in self._database.matches(encoded):
                one, exact = self._taken[place]
                if exact or one.ask(text):
                    atoms.append(one.number)
        return atoms


def _database(forms: Sequence[HyperscanForm], ascii_only: bool) -> Database:
    return Database([form.pattern.encode() for form in forms], utf8=not ascii_only, once=True)


def _takes(form: HyperscanForm, ascii_only: bool) -> bool:
    try:
        _database([form], ascii_only)
    except RefusedError:
        return False
    return True
