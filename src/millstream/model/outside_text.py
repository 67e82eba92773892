"""Cleans external text for use as a key, tag or property of a message. Pure."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MAX_LABEL_CHARACTERS", "clean_text", "is_printable"]

MAX_LABEL_CHARACTERS: Final = 1024
"""Characters of a key, a tag or a property that comes from outside at most."""

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The text as a property can hold it: without control characters and half characters, and of a bounded length."""
    return _CONTROL.sub("?", text[:MAX_LABEL_CHARACTERS])


def is_printable(text: str) -> bool:
    """Whether the text has neither control characters nor half characters."""
    return _CONTROL.search(text) is None
