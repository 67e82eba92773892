"""Regular expressions: hyperscan preselects, and `re` decides where hyperscan is inexact."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.streams.rules.engines.databases import PatternDatabase, RefusedError
from millstream.streams.rules.engines.engine import Found, ValueForms
from millstream.streams.rules.engines.pattern_forms import HyperscanForm, hyperscan_forms
from millstream.streams.rules.predicate_tests import Form, PredicateTest

__all__ = ["PatternEngine", "RegularExpression"]


class RegularExpression(NamedTuple):
    """An atom's number in its group, what it asks, and its test by `re`."""

    number: int
    question: PredicateTest
    ask: Callable[[Any], bool | None]

    @property
    def source(self) -> tuple[str, int]:
        """The expression and its flags."""
        predicate = self.question.predicate
        return str(predicate.operands[0]), int(re.IGNORECASE) if predicate.caseless else 0


_Taken = tuple[RegularExpression, HyperscanForm]


class PatternEngine:
    """The expressions of one form of a field's texts.

    Texts of ASCII alone have a database of their own, in which nearly every expression is exact and needs no `re`.
    """

    name = "hyperscan expressions"

    def __init__(self, form: Form, expressions: Sequence[RegularExpression]) -> None:
        self._form = form
        self._expressions = expressions
        self._ascii = _Scanner(expressions, ascii_only=True)
        self._wide: _Scanner | None = None
        self.atoms = len(expressions)

    @property
    def refused_patterns(self) -> int:
        """Expressions that `re` alone looks for."""
        return len(self._ascii.refused)

    @property
    def database_bytes(self) -> int:
        return self._ascii.database_bytes + (self._wide.database_bytes if self._wide else 0)

    def find(self, values: ValueForms, found: Found) -> None:
        texts = values.forms_of(self._form)
        if all(map(str.isascii, texts)):
            self._ascii.find(texts, range(len(texts)), found)
            return
        numbers = [number for number, text in enumerate(texts) if text.isascii()]
        self._ascii.find([texts[number] for number in numbers], numbers, found)
        numbers = [number for number, text in enumerate(texts) if not text.isascii()]
        if self._wide is None:
            self._wide = _Scanner(self._expressions, ascii_only=False)
        self._wide.find([texts[number] for number in numbers], numbers, found)


class _Scanner:
    """A database of expressions, and those that hyperscan refused."""

    def __init__(self, expressions: Sequence[RegularExpression], *, ascii_only: bool) -> None:
        self._ascii_only = ascii_only
        self._last: tuple[list[_Taken], PatternDatabase] | None = None
        forms = [(one, hyperscan_forms(*one.source, ascii_only=ascii_only)) for one in expressions]
        fitting = self._fitting([(one, some[0]) for one, some in forms])
        known = {one.number for one, _ in fitting}
        fitting += self._fitting([(one, some[-1]) for one, some in forms if one.number not in known and len(some) > 1])
        self._database = self._compile(fitting)
        if self._database is None:
            fitting = []
        known = {one.number for one, _ in fitting}
        self.refused = [one for one in expressions if one.number not in known]
        self._fitting_forms = [(one, form.exact) for one, form in fitting]
        self._last = None

    @property
    def database_bytes(self) -> int:
        return self._database.size_bytes if self._database else 0

    def find(self, texts: Sequence[str], numbers: Sequence[int], found: Found) -> None:
        """Adds what is true of the texts, by their numbers."""
        for one in self.refused:
            for number, text in zip(numbers, texts, strict=True):
                if one.ask(text):
                    found[number].append(one.number)
        if self._database is None:
            return
        try:
            encoded = list(map(str.encode, texts))
        except UnicodeEncodeError:
            self._find_odd(texts, numbers, found)
            return
        for place, expression in self._database.each(encoded):
            one, exact = self._fitting_forms[expression]
            if exact or one.ask(texts[place]):
                found[numbers[place]].append(one.number)

    def _find_odd(self, texts: Sequence[str], numbers: Sequence[int], found: Found) -> None:
        """Texts among which some have no UTF-8: `re` alone reads lone surrogates."""
        for number, text in zip(numbers, texts, strict=True):
            for one, _ in self._fitting_forms:
                if one.ask(text):
                    found[number].append(one.number)

    def _fitting(self, taken: list[_Taken]) -> list[_Taken]:
        """Those that hyperscan takes, found by halves: most often it takes all."""
        if not taken or self._compile(taken) is not None:
            return taken
        if len(taken) == 1:
            return []
        half = len(taken) // 2
        return self._fitting(taken[:half]) + self._fitting(taken[half:])

    def _compile(self, taken: Sequence[_Taken]) -> PatternDatabase | None:
        if not taken:
            return None
        if self._last is not None and self._last[0] == taken:
            return self._last[1]
        try:
            database = PatternDatabase(
                [form.pattern.encode() for _, form in taken], utf8=not self._ascii_only, once=True
            )
        except RefusedError:
            return None
        self._last = list(taken), database
        return database
