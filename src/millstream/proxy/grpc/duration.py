"""Points and lengths of time between protobuf and milliseconds."""

from __future__ import annotations

from millstream.protocol.grpc import messages as m

__all__ = ["duration", "duration_ms", "set_duration", "set_timestamp", "timestamp", "timestamp_ms"]

_LAST_MS = 253_402_300_799_999
"""What a Timestamp may hold at most."""


def duration(length_ms: int) -> m.Duration:
    """A length of time, not negative."""
    value = m.Duration()
    set_duration(value, length_ms)
    return value


def set_duration(value: m.Duration, length_ms: int) -> None:
    """Make a value that is part of a message a length of time, not negative."""
    value.seconds = length_ms // 1000
    value.nanos = length_ms % 1000 * 1_000_000


def duration_ms(value: m.Duration) -> int:
    """Milliseconds of a length of time, cut to whole ones; a client's value may have any sign and size."""
    return value.seconds * 1000 + value.nanos // 1_000_000


def timestamp(time_ms: int) -> m.Timestamp:
    """A point in time; times before 1970 count as 1970, those after the year 9999 as its end."""
    value = m.Timestamp()
    set_timestamp(value, time_ms)
    return value


def set_timestamp(value: m.Timestamp, time_ms: int) -> None:
    """Make a value that is part of a message a point in time, as `timestamp`."""
    # Without the library's FromMilliseconds, which runs in Python: each delivery has two of them.
    if not 0 <= time_ms <= _LAST_MS:
        time_ms = min(max(time_ms, 0), _LAST_MS)
    value.seconds = time_ms // 1000
    value.nanos = time_ms % 1000 * 1_000_000


def timestamp_ms(value: m.Timestamp) -> int:
    """Milliseconds since 1970 of a point in time, cut to whole ones."""
    return value.seconds * 1000 + value.nanos // 1_000_000
