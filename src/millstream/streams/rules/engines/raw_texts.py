"""Words in whole events, looked for in their JSON before anything is made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import numpy as np

from millstream.streams.rules.atoms import Atom, Op
from millstream.streams.rules.engines.databases import HAS_HYPERSCAN, Database
from millstream.streams.rules.engines.literals import found_in
from millstream.streams.rules.event_rows import Raw, Rows

__all__ = ["RawTextFilter", "raw_text_filter"]

_LEAST_CHARACTERS: Final = 4

_OF_NUMBERS: Final = frozenset("0123456789+-.eE")
"""A word of these alone may be part of a number, which a value's text may spell otherwise than the JSON did."""

_HIDDEN: Final = (
    *(rb"\\u00%d" % digit for digit in range(2, 8)),
    rb"\\u212a",
    rb"\\u0130",
    rb"\xe2\x84\xaa",
    rb"\xc4\xb0",
)
"""Where JSON may spell a letter of ASCII by its number, or has a letter whose lower case is one of ASCII (K, İ)."""


class RawTextFilter:
    """Tells the events that may have one of some words in a value; all others have none."""

    def __init__(self, words: Sequence[str]) -> None:
        patterns = [*map(_escaped, words), *_HIDDEN]
        if any("/" in word for word in words):
            patterns.append(rb"\\/")
        self._database = Database(patterns, caseless=True)
        self.database_bytes = self._database.size_bytes

    def rows(self, raw: Sequence[Raw]) -> Rows:
        """The numbers of these events."""
        return np.array(sorted({row for row, _ in found_in(raw, self._database)}), dtype=np.int64)


def raw_text_filter(atoms: Sequence[Atom]) -> RawTextFilter | None:
    """The filter for atoms about whole events; None where one of them may be true without a word in the JSON."""
    if not HAS_HYPERSCAN or not all(map(_is_filterable, atoms)):
        return None
    return RawTextFilter([str(atom.operands[0]) for atom in atoms])


def _is_filterable(atom: Atom) -> bool:
    if atom.op is not Op.CONTAINS or atom.steps or atom.absent is True:
        return False
    word = str(atom.operands[0])
    return (
        len(word) >= _LEAST_CHARACTERS
        and word.isascii()
        and word.isprintable()
        and not _OF_NUMBERS.issuperset(word)
        and word.lower() not in "null"
    )


def _escaped(word: str) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in json.dumps(word)[1:-1].encode())
