"""Text patterns: LIKE and SIMILAR TO, and regular expressions that come from a column."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = [
    "ANY_CHARACTER",
    "ANY_TEXT",
    "all_groups",
    "compile_pattern",
    "first_match",
    "like_parts",
    "match_count",
    "match_position",
    "matched_group",
    "replace_matches",
    "similar_expression",
]


ANY_TEXT: Final = None
"""Stands for `%` among the parts of a LIKE pattern."""

ANY_CHARACTER: Final = 1
"""Stands for `_` among the parts of a LIKE pattern."""

_WILD: dict[str, int | None] = {"%": ANY_TEXT, "_": ANY_CHARACTER}
_SIMILAR_SPECIAL = {"%": "(?s:.*)", "_": "(?s:.)"}
_SIMILAR_OPERATORS = frozenset("|*+?{}()[]-^,0123456789")


def like_parts(pattern: str, escape: str | None) -> list[str | int | None] | None:
    """Plain texts, ANY_TEXT and ANY_CHARACTER in their order; None where an escape stands before what needs none."""
    parts: list[str | int | None] = []
    plain: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following not in ("%", "_", escape) or following is None:
                return None
            plain.append(following)
        elif character in _WILD:
            parts += ["".join(plain)] if plain else []
            plain = []
            parts.append(_WILD[character])
        else:
            plain.append(character)
    return parts + (["".join(plain)] if plain else [])


def similar_expression(pattern: str, escape: str | None) -> str:
    """The regular expression, in Java's syntax, of a SIMILAR TO pattern, over the whole text."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, "")))
        elif character in _SIMILAR_SPECIAL:
            parts.append(_SIMILAR_SPECIAL[character])
        else:
            parts.append(character if character in _SIMILAR_OPERATORS else re.escape(character))
    return rf"\A(?:{''.join(parts)})\z"


_CACHED_PATTERNS = 1_000


@lru_cache(maxsize=_CACHED_PATTERNS)
def compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """The pattern, ready to be used; None for a wrong one."""
    try:
        # Java means ASCII by \\d, \\w and \\b.
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None


def matched_group(text: str, pattern: str, group: int) -> str | None:
    """That group of the first match; None where nothing matches or the group took no part."""
    found = compile_pattern(pattern)
    match = None if found is None else found.search(text)
    return match[group] if match is not None and 0 <= group <= match.re.groups else None


def match_count(text: str, pattern: str) -> int | None:
    """How often the pattern matches."""
    found = compile_pattern(pattern)
    return None if found is None else sum(1 for _ in found.finditer(text))


def match_position(text: str, pattern: str) -> int | None:
    """Where the first match begins, from 1; 0 if there is none."""
    found = compile_pattern(pattern)
    if found is None:
        return None
    match = found.search(text)
    return 0 if match is None else match.start() + 1


def first_match(text: str, pattern: str) -> str | None:
    """The first match, None if there is none."""
    found = compile_pattern(pattern)
    match = None if found is None else found.search(text)
    return None if match is None else match[0]


def all_groups(text: str, pattern: str, group: int) -> list[str | None] | None:
    """What that group of each match holds."""
    found = compile_pattern(pattern)
    if found is None or not 0 <= group <= found.groups:
        return None
    return [match[group] for match in found.finditer(text)]


def replace_matches(text: str, pattern: str, other: str) -> str | None:
    """The text with `other`, as it is, in place of each match."""
    found = compile_pattern(pattern)
    return None if found is None else found.sub(lambda _match: other, text)
