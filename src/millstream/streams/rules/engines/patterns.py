"""Regular expressions: hyperscan says which may match, and `re` has the last word where hyperscan is not exact."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.streams.rules.answers import Form, Question
from millstream.streams.rules.engines.databases import Database, RefusedError
from millstream.streams.rules.engines.engine import Found, Values
from millstream.streams.rules.engines.pattern_forms import hyperscan_forms

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
        taken: list[tuple[Expression, str, bool]] = []
        self.refused: list[Expression] = []
        for one in expressions:
            for form in hyperscan_forms(*one.source, ascii_only=ascii_only):
                if _takes(form.pattern, ascii_only):
                    taken.append((one, form.pattern, form.exact))
                    break
            else:
                self.refused.append(one)
        self._taken = [(one, exact) for one, _, exact in taken]
        self._database: Database | None = None
        if taken:
            self._database = Database([text.encode() for _, text, _ in taken], utf8=not ascii_only, once=True)

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


def _takes(pattern: str, ascii_only: bool) -> bool:
    try:
        Database([pattern.encode()], utf8=not ascii_only, once=True)
    except RefusedError:
        return False
    return True
