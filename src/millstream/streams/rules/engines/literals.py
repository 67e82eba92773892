"""Literal search: all substrings, prefixes and suffixes of a field in one hyperscan pass over its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from millstream.streams.rules.conditions import Op
from millstream.streams.rules.engines.databases import PatternDatabase
from millstream.streams.rules.engines.engine import Found, ValueForms
from millstream.streams.rules.event_rows import Rows
from millstream.streams.rules.predicate_tests import Form

__all__ = [
    "MOST_LITERAL_BYTES",
    "PATIENCE_TEXTS",
    "FewLiteralsEngine",
    "LiteralEngine",
    "LiteralPattern",
    "find_literals",
    "literal_pattern",
]

MOST_LITERAL_BYTES: Final = 2_000
"""Longer literals are looked for one by one."""

_BORDER: Final = b"\xff"
"""Between texts: a byte that UTF-8 never has, so no literal reaches over it."""

PATIENCE_TEXTS: Final = 600
_PATIENCE_ASKED: Final = 75_000
"""Texts that are searched for one literal after another before compiling them pays: so many, and more for few."""

_PER_TURN: Final = 10
"""Looking for one literal after another costs as much as so many texts even where there is one."""

_TEXT_CHARACTERS: Final = 500
"""A longer text counts as several."""

_BLOCK_BYTES: Final = 8 << 20
"""Texts are joined to blocks of about this size."""


def literal_pattern(op: Op, literal: str) -> bytes:
    """What to look for in joined texts: a start follows a border, an end stands before one."""
    text = literal.encode("utf-8", "surrogatepass")
    whole = {Op.STARTS: _BORDER + text, Op.ENDS: text + _BORDER}.get(op, text)
    return b"".join(b"\\x%02x" % byte for byte in whole)


class LiteralPattern(NamedTuple):
    """The number of an atom in its group, where it looks for its text, and the text."""

    number: int
    op: Op
    text: str


class FewLiteralsEngine:
    """Literals that are looked for one after another: few, or where there is no hyperscan."""

    name = "literals one by one"
    database_bytes = 0

    def __init__(self, form: Form, literals: Sequence[LiteralPattern]) -> None:
        self._form = form
        self._literals = literals
        self.atoms = len(literals)

    def find(self, values: ValueForms, found: Found) -> None:
        texts = values.forms_of(self._form)
        for predicate, op, part in self._literals:
            if op is Op.CONTAINS:
                places = [place for place, text in enumerate(texts) if part in text]
            elif op is Op.STARTS:
                places = [place for place, text in enumerate(texts) if text.startswith(part)]
            else:
                places = [place for place, text in enumerate(texts) if text.endswith(part)]
            for place in places:
                found[place].append(predicate)


class LiteralEngine:
    """Literals that are looked for in one form of a field's texts; compiled once enough texts came to pay for it."""

    def __init__(self, form: Form, literals: Sequence[LiteralPattern]) -> None:
        self._form = form
        self._one_by_one = FewLiteralsEngine(form, literals)
        self._literals = literals
        self._patience = PATIENCE_TEXTS + _PATIENCE_ASKED // len(literals) if PATIENCE_TEXTS else 0
        self._database: PatternDatabase | None = None
        self.atoms = len(literals)

    @property
    def name(self) -> str:
        """Which way they are looked for now."""
        return self._one_by_one.name if self._database is None else "hyperscan literals"

    @property
    def database_bytes(self) -> int:
        return self._database.size_bytes if self._database else 0

    def compile(self) -> PatternDatabase:
        """The database of all the literals; from now on they are looked for in it."""
        self._database = PatternDatabase([literal_pattern(one.op, one.text) for one in self._literals])
        return self._database

    def find(self, values: ValueForms, found: Found) -> None:
        texts = values.forms_of(self._form)
        if self._database is None:
            self._patience -= _PER_TURN + len(texts) + sum(map(len, texts)) // _TEXT_CHARACTERS
            if self._patience > 0:
                self._one_by_one.find(values, found)
                return
            database = self.compile()
        else:
            database = self._database
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        for place, literal in find_literals(encoded, database):
            found[place].append(self._literals[literal].number)


def find_literals(texts: Sequence[bytes | memoryview], database: PatternDatabase) -> Iterator[tuple[int, int]]:
    """Which text has which literal of a database in it, each pair once."""
    for start, places, literals in _matches(texts, database):
        yield from dict.fromkeys(zip((places + start).tolist(), literals, strict=True))


def _matches(texts: Sequence[bytes | memoryview], database: PatternDatabase) -> Iterator[tuple[int, Rows, list[int]]]:
    """Block by block: the place of its first text, and of each match the text, from there on, and the literal."""
    # Behind each text stands a border, and one before the first.
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    start, start_byte = 0, 0
    while start < len(texts):
        stop = max(start + 1, int(np.searchsorted(ends, start_byte + _BLOCK_BYTES, side="right")))
        matches = database.matches(_BORDER + _BORDER.join(texts[start:stop]) + _BORDER)
        if matches:
            # A match ends within its text or, where the literal is an end, on the border after it.
            matched = np.fromiter((end for _, end in matches), np.int64, len(matches))
            places = np.searchsorted(ends[start:stop] - start_byte, matched - 1, side="left")
            yield start, places, [literal for literal, _ in matches]
        start, start_byte = stop, int(ends[stop - 1])
