"""Keys and values in texts."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["key_values", "parse_kv", "value_of_key"]

_CACHED_SEPARATORS = 1_000
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def value_of_key(text: str | None, pairs: str | None, keys: str | None, key: str | None) -> str | None:
    """The value of `key` in a text of pairs; each character of a separator separates, None means white space."""
    if not text or key is None:
        return None
    for pair in _split_text(text, pairs, 0):
        name, *value = _split_text(pair, keys, 1)
        if name == key and value:
            return value[0]
    return None


def _split_text(text: str, separators: str | None, most: int) -> list[str]:
    pattern = r"\s" if not separators else f"[{re.escape(separators)}]"
    return re.split(pattern, text, maxsplit=most)


def key_values(text: str, pairs: str | None = None, keys: str = "=") -> dict[str, str]:
    """The keys and values of a log line; `pairs` and `keys` are plain texts, None means white space.

    A value may stand in single or double quotes, with a backslash before a quote inside. The last of a key counts.
    """
    values = {}
    for match in _pattern(pairs, keys).finditer(text):
        if match["quote"]:
            values[match["key"]] = _ESCAPED.sub(r"\1", match["quoted"])
        else:
            values[match["key"]] = match["plain"].strip()
    return values


def parse_kv(text: str, pairs: str, keys: str) -> dict[str, str] | None:
    """`key_values` of a text with separators of its own; None where one of them is blank."""
    return key_values(text, pairs, keys) if pairs and keys else None


@lru_cache(maxsize=_CACHED_SEPARATORS)
def _pattern(pairs: str | None, keys: str) -> re.Pattern[str]:
    blank = pairs is None or not pairs.strip()
    pair, key = r"\s" if blank else re.escape(pairs or ""), re.escape(keys)
    start = r"(?:^|(?<=\s))" if blank else rf"(?:^|(?<=\s)|(?<={pair}))"
    gap = "" if blank else r"[^\S\r\n]*+"
    # Possessive, and only where a key can begin: a long line without keys is read once.
    return re.compile(
        rf"{start}(?P<key>(?:(?!{pair}|{key})\S)++)\s*+{key}{gap}"
        rf"(?:(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\\]|\\.)*+)(?P=quote)|(?P<plain>(?:(?!{pair}).)*+))",
        re.DOTALL,
    )
