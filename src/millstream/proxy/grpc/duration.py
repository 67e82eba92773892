"""Points and lengths of time between protobuf and milliseconds."""

from __future__ import annotations

from functools import lru_cache

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.wire import VARINTS, number_field, tag

__all__ = ["duration_ms", "encoded_time", "timestamp_ms"]

_LAST_MS = 253_402_300_799_999
"""What a Timestamp may hold at most."""

_KEPT_TIMES = 4096
"""Points and lengths of time whose bytes are kept: messages that were sent together were stored together."""

# Both have the same two fields.
_SECONDS, _NANOS = tag(m.Timestamp, "seconds"), tag(m.Timestamp, "nanos")
_NANOS_BY_MS = tuple(number_field(_NANOS, number * 1_000_000) for number in range(1000))


def duration_ms(value: m.Duration) -> int:
    """Milliseconds of a length of time, cut to whole ones; a client's value may have any sign and size."""
    return value.seconds * 1000 + value.nanos // 1_000_000


@lru_cache(maxsize=_KEPT_TIMES)
def encoded_time(time_ms: int) -> bytes:
    """A Timestamp, or a Duration that is not negative, in wire format behind its length.

    Points in time before 1970 count as 1970, those after the year 9999 as its end.
    """
    if not 0 <= time_ms <= _LAST_MS:
        time_ms = min(max(time_ms, 0), _LAST_MS)
    written = _seconds(time_ms // 1000) + _NANOS_BY_MS[time_ms % 1000]
    return VARINTS[len(written)] + written


@lru_cache(maxsize=_KEPT_TIMES)
def _seconds(number: int) -> bytes:
    return number_field(_SECONDS, number)


def timestamp_ms(value: m.Timestamp) -> int:
    """Milliseconds since 1970 of a point in time, cut to whole ones."""
    return value.seconds * 1000 + value.nanos // 1_000_000
