"""Store timestamps while the clock is put forward and back: they never fall, and never stand still for long."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.store.message_store import MessageStore, PendingRecord
from millstream.store.store_times import StoreTimes

HOUR_MS = 3_600_000


def put(store: MessageStore) -> int:
    """The store timestamp of one more message."""
    (appended,) = store.put([PendingRecord(OutgoingMessage("t", b"x", {}, queue_id=0), 0)])
    return appended.store_timestamp_ms


@given(st.lists(st.tuples(st.sampled_from(["pass", "set", "put"]), st.integers(-5_000_000, 5_000_000))))
def test_timestamps_never_fall_and_are_the_clocks_where_that_is_later(steps: list[tuple[str, int]]) -> None:
    clock, times = ManualClock(), StoreTimes(1_700_000_000_500)
    before = times.last_ms
    for kind, amount_ms in steps:
        if kind == "pass":
            clock.advance_ms(abs(amount_ms))
        elif kind == "set":
            clock.set_wall(amount_ms)
        given_ms = times.next(clock.now_ms(), clock.monotonic_s())
        assert given_ms >= max(before, clock.now_ms())
        if kind == "put":
            times.note_write(given_ms)
            before = given_ms


def test_timestamps_that_are_ahead_go_on_at_half_speed_until_the_clock_has_caught_up() -> None:
    # The clock is an hour behind; it meets the last timestamp in the end, and is followed again.
    clock = ManualClock(0)
    times = StoreTimes(HOUR_MS)
    seen = []
    for _ in range(5):
        seen.append(times.next(clock.now_ms(), clock.monotonic_s()))
        times.note_write(seen[-1])
        clock.advance_ms(HOUR_MS // 2)
    assert [ms / HOUR_MS for ms in seen] == [1.0, 1.25, 1.5, 1.5, 2.0]


def test_messages_stored_behind_a_clock_that_went_back_are_found_by_time_in_their_order(tmp_path: Path) -> None:
    clock = ManualClock()
    with_times = []
    store = MessageStore.open(tmp_path, clock=clock)
    clock.set_wall(HOUR_MS)
    put(store)
    clock.set_wall(-HOUR_MS)
    for _ in range(10):
        clock.advance_ms(1_000)
        with_times.append(put(store))
    assert with_times == sorted(set(with_times))
    assert [store.offset_by_time("t", 0, ms) for ms in with_times] == [0, *range(2, 11)]
    store.close()


def test_a_log_from_a_clock_that_was_ahead_is_named_at_the_start_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = MessageStore.open(tmp_path, clock=clock)
    clock.set_wall(HOUR_MS)
    ahead_ms = put(store)
    store.close()
    with caplog.at_level(logging.WARNING):
        clock.set_wall(-HOUR_MS)
        store = MessageStore.open(tmp_path, clock=clock)
    assert "MS-4015" in caplog.text
    assert "3600.0 s ahead" in caplog.text
    assert put(store) >= ahead_ms
    clock.advance_ms(2 * HOUR_MS)
    assert put(store) == clock.now_ms()
    store.close()
    caplog.clear()
    store = MessageStore.open(tmp_path, clock=clock)
    assert "MS-4015" not in caplog.text
    store.close()
