"""Parses times and durations such as `10m` and `2026-11-21T08:30`. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

__all__ = ["FIRST_MS", "LAST_MS", "duration_ms", "moment_ms"]

FIRST_MS: Final = -62_135_596_800_000
"""The beginning of the year 1; earlier times have no ISO form."""

LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999; later times have no ISO form."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d)?")
_MILLISECONDS = re.compile(r"\d{11,15}")


def duration_ms(text: str) -> int:
    """Milliseconds of a length such as `250ms`, `5s`, `1.5m`, `2h`, `3d`; without a unit seconds. ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no length of time; write it as in 250ms, 5s, 10m, 2h or 3d")
    return round(float(match[1]) * _UNITS_MS[match[2] or "s"])


def moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of a time in ISO form (UTC unless it names a zone), or so long ago: `10m`. ValueError.

    Eleven digits and more are milliseconds since 1970 themselves.
    """
    stripped = text.strip()
    if _MILLISECONDS.fullmatch(stripped) and int(stripped) <= LAST_MS:
        return int(stripped)
    if _DURATION.fullmatch(stripped) and not stripped.isdigit():
        return now_ms - duration_ms(stripped)
    try:
        found = datetime.fromisoformat(stripped)
    except ValueError:
        found = None
    if found is None or stripped.isdigit():
        raise ValueError(f"{text!r} is no time; write 2026-11-21T08:30, or 10m for ten minutes ago")
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
