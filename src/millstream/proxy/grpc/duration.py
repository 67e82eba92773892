"""Points and lengths of time between protobuf and milliseconds."""

from __future__ import annotations

from millstream.protocol.grpc import messages as m

__all__ = ["duration", "duration_ms", "timestamp", "timestamp_ms"]


def duration(length_ms: int) -> m.Duration:
    """A length of time."""
    value = m.Duration()
    value.FromMilliseconds(length_ms)
    return value


def duration_ms(value: m.Duration) -> int:
    """Milliseconds of a length of time, cut to whole ones; a client's value may have any sign and size."""
    return value.seconds * 1000 + value.nanos // 1_000_000


def timestamp(time_ms: int) -> m.Timestamp:
    """A point in time; times before 1970 count as 1970."""
    value = m.Timestamp()
    value.FromMilliseconds(max(time_ms, 0))
    return value


def timestamp_ms(value: m.Timestamp) -> int:
    """Milliseconds since 1970 of a point in time, cut to whole ones."""
    return value.seconds * 1000 + value.nanos // 1_000_000
