"""Points in time that clients and records may hold, as protobuf's Timestamp."""

from __future__ import annotations

import pytest

from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.message_conversion import duration_ms, encoded_time, timestamp_ms

LAST_MS = 253_402_300_799_999


@pytest.mark.parametrize(
    ("time_ms", "shown_ms"), [(0, 0), (-5, 0), (1_700_000_000_123, 1_700_000_000_123), (LAST_MS + 1, LAST_MS)]
)
def test_any_number_a_record_holds_is_a_timestamp_that_every_library_reads(time_ms: int, shown_ms: int) -> None:
    value = m.Timestamp.FromString(encoded_time(time_ms)[1:])
    assert timestamp_ms(value) == shown_ms
    assert value.ToMilliseconds() == shown_ms


@pytest.mark.parametrize("length_ms", [0, 999, 30_000, 43_200_001])
def test_a_length_of_time_comes_back(length_ms: int) -> None:
    value = m.Duration.FromString(encoded_time(length_ms)[1:])
    assert duration_ms(value) == length_ms == value.ToMilliseconds()
