"""Encodes any text as a property value, which must not hold control characters.

A control character becomes `|XX`, its number in upper-case hex digits, and so does a `|` that would look like one of
them; all other text stays as it is.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["escape_text", "has_unsafe_character", "unescape_text"]

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]|\|(?=[0-9A-F]{2})")
_ESCAPED: Final = re.compile(r"\|([0-9A-F]{2})")


def escape_text(text: str) -> str:
    """The text without control characters; another one for any other text."""
    return text if text.isprintable() and "|" not in text else _UNSAFE.sub(_escape_one, text)


def unescape_text(text: str) -> str:
    """What `escape_text` was given."""
    return text if "|" not in text else _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def has_unsafe_character(text: str) -> bool:
    """Whether `escape_text` would change the text."""
    return _UNSAFE.search(text) is not None


def _escape_one(found: re.Match[str]) -> str:
    return f"|{ord(found[0]):02X}"
