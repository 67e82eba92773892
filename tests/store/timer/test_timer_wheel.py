"""The wheel hands out what is due, in order, never early, and never takes back what was due."""

from __future__ import annotations

import random

import pytest
from timer_samples import NOW_MS

from millstream.model.errors import MessageRefused
from millstream.store.timer.hour import HOUR_MS, MAX_OFFSET_SPAN
from millstream.store.timer.pending_offsets import MAX_DUE_MS
from millstream.store.timer.wheel import UNFOLD_STEP, Wheel

DAY_MS = 24 * HOUR_MS
BOUNDS_S = (0, 60, 3600, 86_400)


def _wheel(*due_times_ms: int) -> Wheel:
    wheel = Wheel()
    for queue_offset, due_ms in enumerate(due_times_ms):
        wheel.schedule(due_ms, queue_offset)
    return wheel


def test_a_timer_is_due_at_its_millisecond_and_not_before() -> None:
    for due_ms in (NOW_MS, NOW_MS + 999, NOW_MS + HOUR_MS - 1, NOW_MS + HOUR_MS, NOW_MS + 3 * DAY_MS + 17):
        wheel = _wheel(due_ms)
        assert wheel.due(NOW_MS - 1, 10) == []
        assert wheel.due(due_ms - 1, 10) == []
        assert wheel.due(due_ms, 10) == [0]


def test_timers_come_in_the_order_of_their_times_and_then_of_the_queue() -> None:
    choose = random.Random(1)
    times = [NOW_MS + choose.randrange(0, 5 * HOUR_MS, 700) for _ in range(3000)]
    wheel = _wheel(*times)
    expected = sorted(range(3000), key=lambda offset: (times[offset], offset))
    assert wheel.due(NOW_MS + 5 * HOUR_MS, 10_000) == expected
    handed_out = []
    for _ in range(3000 // 7 + 1):
        batch = wheel.due(NOW_MS + 5 * HOUR_MS, 7)
        handed_out += batch
        for queue_offset in batch:
            assert wheel.finish(queue_offset)
    assert handed_out == expected


def test_a_timer_is_handed_out_until_it_is_done() -> None:
    wheel = _wheel(NOW_MS, NOW_MS + 1, NOW_MS + 2)
    assert wheel.due(NOW_MS + 2, 2) == [0, 1]
    assert wheel.due(NOW_MS + 2, 2) == [0, 1]
    assert wheel.finish(1)
    assert wheel.due(NOW_MS + 2, 2) == [0, 2]
    assert not wheel.finish(1)
    assert wheel.due(NOW_MS + 2, 0) == []


def test_a_timer_that_comes_late_takes_its_place_among_those_that_are_due() -> None:
    wheel = _wheel(NOW_MS + 5000, NOW_MS + 5001)
    assert wheel.due(NOW_MS + 6000, 10) == [0, 1]
    wheel.schedule(NOW_MS + 1000, 2)
    wheel.schedule(NOW_MS + 5000, 3)
    wheel.schedule(NOW_MS - 2 * HOUR_MS, 4)
    wheel.schedule(0, 5)
    assert wheel.due(NOW_MS + 6000, 1) == [5]
    assert wheel.due(NOW_MS + 6000, 10) == [5, 4, 2, 0, 3, 1]


def test_a_timer_that_comes_late_is_first_even_if_enough_others_are_due() -> None:
    wheel = _wheel(NOW_MS + 5000, NOW_MS + 5001)
    assert wheel.due(NOW_MS + 6000, 1) == [0]
    wheel.schedule(NOW_MS + 1000, 2)
    assert wheel.due(NOW_MS + 6000, 1) == [2]
    wheel.schedule(NOW_MS + 500, 3)
    assert wheel.due(NOW_MS + 400, 1) == [2]
    assert wheel.due(NOW_MS + 500, 1) == [3]


def test_a_clock_that_steps_back_takes_nothing_back_and_fires_nothing_early() -> None:
    wheel = _wheel(NOW_MS + 100, NOW_MS + 2000, NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS)
    assert wheel.due(NOW_MS + HOUR_MS, 1) == [0]
    wheel.schedule(NOW_MS + 50, 4)
    wheel.schedule(NOW_MS + HOUR_MS, 5)
    assert wheel.due(NOW_MS, 10) == [0, 1, 2], "what was due stays due, handed out or not; what came later is not due"
    assert wheel.due(NOW_MS + 49, 10) == [0, 1, 2]
    assert wheel.due(NOW_MS + 50, 10) == [4, 0, 1, 2]
    assert wheel.due(NOW_MS - DAY_MS, 10) == [4, 0, 1, 2]
    assert wheel.due(NOW_MS + DAY_MS, 10) == [4, 0, 1, 2, 5, 3]


def test_a_clock_that_jumps_forward_fires_all_that_lies_between() -> None:
    wheel = _wheel(*(NOW_MS + hour * HOUR_MS for hour in range(7 * 24)))
    assert wheel.due(NOW_MS + 7 * DAY_MS, 1000) == [*range(7 * 24)]


def test_a_crowded_hour_is_made_ready_in_steps_and_misses_nothing() -> None:
    choose = random.Random(2)
    start_ms = NOW_MS - NOW_MS % HOUR_MS
    times = [start_ms + HOUR_MS + choose.randrange(HOUR_MS) for _ in range(3 * UNFOLD_STEP)]
    wheel = _wheel(*times)
    assert wheel.due(start_ms, 10) == []
    wheel.schedule(start_ms + HOUR_MS, len(times))
    assert wheel.due(start_ms + 1, 10) == []
    assert len(wheel.due(start_ms + 2 * HOUR_MS, 1_000_000)) == len(times) + 1


@pytest.mark.parametrize("offset_step", [1, 3, 2048, 5000])
def test_timers_that_are_done_in_any_order_leave_the_others(offset_step: int) -> None:
    choose = random.Random(offset_step)
    wheel = Wheel()
    pending = {offset * offset_step: NOW_MS + choose.randrange(HOUR_MS) for offset in range(2500)}
    for queue_offset, due_ms in pending.items():
        assert wheel.schedule(due_ms, queue_offset)
    for queue_offset in choose.sample(sorted(pending), 2400):
        assert wheel.finish(queue_offset)
        assert wheel.due_ms(queue_offset) is None
        assert not wheel.finish(queue_offset)
        del pending[queue_offset]
        assert wheel.oldest_pending() == min(pending)
        assert wheel.due_ms(max(pending)) == pending[max(pending)]
    assert wheel.due(NOW_MS + HOUR_MS, 1000) == sorted(pending, key=lambda offset: (pending[offset], offset))
    assert len(wheel) == 100


def test_a_queue_offset_that_is_known_is_passed_over() -> None:
    wheel = _wheel(NOW_MS, NOW_MS)
    assert not wheel.schedule(NOW_MS + 5, 1)
    assert wheel.finish(1)
    assert not wheel.schedule(NOW_MS + 5, 1)
    assert not wheel.schedule(NOW_MS, -1)
    assert not wheel.finish(7)
    assert wheel.schedule(NOW_MS + 5, 9)
    assert wheel.next_queue_offset == 10
    assert wheel.due(NOW_MS + 5, 10) == [0, 9]


def test_any_time_that_fits_is_kept_and_others_are_refused() -> None:
    wheel = _wheel(0, MAX_DUE_MS)
    for due_ms in (-1, MAX_DUE_MS + 1):
        with pytest.raises(MessageRefused) as caught:
            wheel.schedule(due_ms, 2)
        assert caught.value.name == "ILLEGAL_DELIVERY_TIME"
    assert wheel.next_queue_offset == 2
    assert wheel.due(MAX_DUE_MS - 1, 10) == [0]
    assert wheel.due(MAX_DUE_MS, 10) == [0, 1]


def test_queue_offsets_that_do_not_fit_into_one_hour_are_refused() -> None:
    wheel = _wheel(NOW_MS)
    assert wheel.schedule(NOW_MS, MAX_OFFSET_SPAN - 1)
    with pytest.raises(ValueError, match="too far"):
        wheel.schedule(NOW_MS, MAX_OFFSET_SPAN)
    assert wheel.schedule(NOW_MS + HOUR_MS, MAX_OFFSET_SPAN)
    assert wheel.due(NOW_MS + HOUR_MS, 10) == [0, MAX_OFFSET_SPAN - 1, MAX_OFFSET_SPAN]


def test_the_counts_say_how_soon_timers_are_due() -> None:
    now_ms = NOW_MS - NOW_MS % HOUR_MS + 1_234_000
    minute_ms = 60_000
    delays_ms = [-DAY_MS, -1, 0, minute_ms - 1, minute_ms, HOUR_MS - 1, HOUR_MS, DAY_MS - 1, DAY_MS, 9 * DAY_MS]
    wheel = _wheel(*(now_ms + delay_ms for delay_ms in delays_ms))
    assert wheel.counts(now_ms, BOUNDS_S) == [2, 2, 2, 2, 2]
    wheel.finish(0)
    wheel.finish(9)
    assert wheel.counts(now_ms, BOUNDS_S) == [1, 2, 2, 2, 1]
    assert wheel.counts(now_ms + 10 * DAY_MS, BOUNDS_S) == [8, 0, 0, 0, 0]
    assert sum(wheel.counts(0, BOUNDS_S)) == len(wheel) == 8


def test_an_empty_wheel_has_nothing() -> None:
    wheel = Wheel()
    assert wheel.due(NOW_MS, 10) == []
    assert wheel.oldest_pending() is None
    assert wheel.counts(NOW_MS, BOUNDS_S) == [0, 0, 0, 0, 0]
    assert wheel.take_changes() == []
