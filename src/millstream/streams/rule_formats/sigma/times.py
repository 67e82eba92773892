"""Parts of times for Sigma's modifiers `minute`, `hour`, `day`, `week`, `month` and `year`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

__all__ = ["PART_RANGES", "part_is"]

PART_RANGES: Final = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "week": (1, 53),
    "month": (1, 12),
    "year": (1, 9999),
}
"""The least and the highest number of each part; weeks are ISO's."""

_TIME: Final = re.compile(r"\s*(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2}))?", re.ASCII)

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "minute": lambda time: time.minute,
    "hour": lambda time: time.hour,
    "day": lambda time: time.day,
    "week": lambda time: time.isocalendar().week,
    "month": lambda time: time.month,
    "year": lambda time: time.year,
}


def part_is(value: Any, part: str, comparison: str, number: float) -> bool | None:
    """Whether that part of a time compares so; None where the value is no time that begins `2026-11-21[ T]08:30`.

    The digits count as they stand there: Sigma converts no time zones.
    """
    found = _TIME.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    try:
        time = datetime(*(int(digits or 0) for digits in found.groups()))  # type: ignore[arg-type]
    except ValueError:
        return None
    return _COMPARE[comparison](_PARTS[part](time), number)
