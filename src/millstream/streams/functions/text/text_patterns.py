"""The patterns of LIKE and SIMILAR TO, taken apart. Nothing is an escape unless one is named."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ANY_CHARACTER", "ANY_TEXT", "like_parts", "similar_expression"]

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
