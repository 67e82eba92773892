"""The time of an event, as systems of many kinds write it."""

from __future__ import annotations

import datetime
from typing import Any

from millstream.streams.rules.plain import number_of

__all__ = ["event_time_us"]

_UNITS_US = ((10**11, 10**6), (10**14, 10**3), (10**17, 1))
"""A number below the first counts units of so many microseconds: seconds, milliseconds, microseconds."""

_NANOSECONDS = 1000
_END_US = 253_402_300_800_000_000
"""The year 10000, from which on nothing can be shown."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def event_time_us(value: Any) -> int | None:
    """Microseconds since 1970 of an ISO 8601 or SQL text (UTC without a zone) or of a number; None for anything else.

    A number, or its text, counts seconds, milliseconds, microseconds or nanoseconds, whichever is of our days.
    """
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return _of_number(number_of(value.strip()))
        return ((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH) // _MICROSECOND
    return _of_number(number_of(value))


def _of_number(number: int | float | None) -> int | None:
    if number is None or number < 0:
        return None
    for below, unit_us in _UNITS_US:
        if number < below:
            return int(number * unit_us)
    time_us = int(number // _NANOSECONDS) if number < _END_US * _NANOSECONDS else _END_US
    return time_us if time_us < _END_US else None
