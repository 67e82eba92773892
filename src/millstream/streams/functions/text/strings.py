"""Places and words of a text."""

from __future__ import annotations

import re

__all__ = ["capitalise", "nth_position"]

_WORD = re.compile("[0-9A-Za-z]+")


def capitalise(text: str) -> str:
    """Each word with a large first letter; words are runs of ASCII letters and digits, and only those change case."""
    return _WORD.sub(lambda word: word[0].capitalize(), text)


def nth_position(text: str, part: str, start: int, occurrence: int) -> int | None:
    """The place (from 1) of the n-th occurrence from `start` on, 0 if there is none.

    A negative start counts from the end and searches backward; 0 finds nothing. None for an occurrence below 1.
    """
    if occurrence < 1:
        return None
    if start == 0 or abs(start) > len(text) + 1:
        return 0
    place = start - 2 if start > 0 else len(text) + start + 1
    for _ in range(occurrence):
        if start > 0:
            place = text.find(part, place + 1)
        elif place > 0:
            place = text.rfind(part, 0, place - 1 + len(part))
        else:
            return 0
        if place < 0:
            return 0
    return place + 1
