"""Words that a text must have for a regular expression to be found in it."""

from __future__ import annotations

import re
import warnings
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

__all__ = ["needed_words"]

_LEAST_CHARACTERS: Final = 4
"""Shorter words are in so many texts that looking for them saves nothing."""

_MOST_WORDS: Final = 64

_LETTERS: Final = re.compile("[a-df-z]")
"""What no number has: words of digits alone may be spelled in many ways."""

Words = frozenset[str]


def needed_words(expression: str, flags: int) -> Words:
    """Words one of which every text has in which `re.search` finds the expression, whatever the case of letters.

    They are of printable ASCII, in lower case, and have a letter. Empty where no such words are known. Letters beyond
    ASCII that count as one of ASCII where case does not matter (K, ſ, ı, İ) are not thought of.
    """
    with warnings.catch_warnings(action="ignore"):
        parsed = _parser.parse(expression, flags)
    return _of_sequence(parsed)


def _of_sequence(parsed: Any) -> Words:
    """The best words of the parts that must all be found one behind the other."""
    best: Words = frozenset()
    run: list[str] = []
    for operation, argument in parsed:
        if operation is _constants.LITERAL and 0x20 <= argument < 0x7F:
            run.append(chr(argument).lower())
            continue
        best = _better(best, _of_run(run))
        run = []
        best = _better(best, _of_part(operation, argument))
    return _better(best, _of_run(run))


def _of_run(run: list[str]) -> Words:
    word = "".join(run)
    return frozenset({word}) if len(word) >= _LEAST_CHARACTERS and _LETTERS.search(word) else frozenset()


def _of_part(operation: Any, argument: Any) -> Words:
    match operation:
        case _constants.SUBPATTERN:
            return _of_sequence(argument[3])
        case _constants.ATOMIC_GROUP:
            return _of_sequence(argument)
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
            least, _most, repeated = argument
            return _of_sequence(repeated) if least else frozenset()
        case _constants.BRANCH:
            branches = [_of_sequence(branch) for branch in argument[1]]
            return frozenset().union(*branches) if all(branches) else frozenset()
        case _:
            return frozenset()


def _better(one: Words, other: Words) -> Words:
    """Those whose shortest word is longer; what is no choice at all loses."""
    if not other or len(other) > _MOST_WORDS:
        return one
    return other if not one or min(map(len, other)) > min(map(len, one)) else one
