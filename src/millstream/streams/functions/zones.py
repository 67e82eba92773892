"""Time zones by name."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from zoneinfo import ZoneInfo

__all__ = ["in_other_zone", "zone_name", "zone_of"]

_CACHED_ZONES = 1_000
_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?")
_SHORT = {
    "PST": "America/Los_Angeles",
    "MST": "America/Denver",
    "CST": "America/Chicago",
    "EST": "America/New_York",
    "JST": "Asia/Tokyo",
    "IST": "Asia/Kolkata",
    "CET": "Europe/Paris",
}
"""Those of Java's short names that Python has not, or has without summer time."""

_MINUTES_OF_DAY = 1440


@lru_cache(maxsize=_CACHED_ZONES)
def zone_of(name: str) -> datetime.tzinfo | None:
    """The zone of a name such as `Asia/Tokyo`, `PST` or `GMT-08:00`; None if there is none."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes >= _MINUTES_OF_DAY:
            return None
        return datetime.timezone(datetime.timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    try:
        return ZoneInfo(_SHORT.get(name, name))
    except (ValueError, OSError, LookupError):
        return None


def zone_name(name: str) -> str | None:
    """The zone's name as Java takes it: one of a place, or an offset such as `+05:30`; None if there is none."""
    zone = zone_of(name)
    if isinstance(zone, ZoneInfo):
        return zone.key
    offset = None if zone is None else zone.utcoffset(None)
    if offset is None:
        return None
    minutes = offset // datetime.timedelta(minutes=1)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def in_other_zone(text: str, source: str, target: str) -> str | None:
    """A time `yyyy-MM-dd HH:mm:ss` of one zone as text in another; None for a bad text or zone."""
    before, after = zone_of(source), zone_of(target)
    if before is None or after is None:
        return None
    try:
        time = datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=before)
        return time.astimezone(after).strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    except (ValueError, OverflowError):
        return None
