"""Keys and values in texts."""

from __future__ import annotations

import re

__all__ = ["value_of_key"]


def value_of_key(text: str | None, pairs: str | None, keys: str | None, key: str | None) -> str | None:
    """The value of `key` in a text of pairs; each character of a separator separates, None means white space."""
    if not text or key is None:
        return None
    for pair in _split(text, pairs, 0):
        name, *value = _split(pair, keys, 1)
        if name == key and value:
            return value[0]
    return None


def _split(text: str, separators: str | None, most: int) -> list[str]:
    pattern = r"\s" if not separators else f"[{re.escape(separators)}]"
    return re.split(pattern, text, maxsplit=most)
