"""The expiry time of a message: a property with milliseconds since 1970, as a decimal number.

Pops and feeds pass over a message whose time is over. It stays in the log, for readers that pull.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.model.properties import EXPIRES_MS

__all__ = ["MAX_EXPIRY_DIGITS", "expires_ms_of", "is_expired"]

MAX_EXPIRY_DIGITS: Final = 15
"""Digits of the number at most: more are no time that anybody means, and count as none."""


def expires_ms_of(properties: Mapping[str, str]) -> int | None:
    """When the message expires; None for one that never does, or whose property says no time."""
    text = properties.get(EXPIRES_MS)
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > MAX_EXPIRY_DIGITS:
        return None
    return int(text)


def is_expired(properties: Mapping[str, str], now_ms: int) -> bool:
    """Whether the message's time is over."""
    expires_ms = expires_ms_of(properties)
    return expires_ms is not None and expires_ms <= now_ms
