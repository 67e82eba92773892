"""Sums of the last minute, hour and day."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.traffic import DAY_MS, HOUR_MS, MINUTE_MS, TrafficHistory


def test_a_young_counter_tells_all_it_has_and_since_when() -> None:
    history = TrafficHistory(5_000)
    assert history.growth(MINUTE_MS, 7_000, 10, 100) == (10, 100, 2_000)
    assert history.growth(MINUTE_MS, 7_000, 10, 100).messages_per_s == 5.0
    assert history.growth(DAY_MS, 5_000, 0, 0).bytes_per_s == 0.0


@given(st.lists(st.integers(0, 50), min_size=10, max_size=400), st.sampled_from([10_000, MINUTE_MS, HOUR_MS]))
def test_a_sum_is_what_was_added_in_its_span_and_at_most_one_interval_more(added: list[int], span_ms: int) -> None:
    """One look every 10 s; `added[n]` comes right before look n."""
    history = TrafficHistory(0)
    total = 0
    for number, more in enumerate(added, start=1):
        total += more
        history.note(number * 10_000, total, total * 7)
    now_ms = len(added) * 10_000
    grown = history.growth(span_ms, now_ms, total, total * 7)
    assert min(span_ms, now_ms) <= grown.elapsed_ms <= span_ms * 7 // 6 + 10_000
    assert grown.messages == sum(added[-(grown.elapsed_ms // 10_000) :])
    assert grown.size_bytes == grown.messages * 7


def test_what_was_seen_is_the_same_between_two_looks() -> None:
    history = TrafficHistory(0)
    assert history.growth_seen(MINUTE_MS).messages_per_s == 0.0
    history.note(10_000, 50, 500)
    assert history.growth_seen(MINUTE_MS) == (50, 500, 10_000)
    history.note(20_000, 50, 500)
    assert history.growth_seen(10_000) == (0, 0, 10_000)
    assert history.growth_seen(MINUTE_MS).messages_per_s == 2.5


def test_a_day_of_looks_is_summed_by_the_hour_and_stays_small() -> None:
    history = TrafficHistory(0)
    for number in range(1, 3 * 24 * 360 + 1):
        history.note(number * 10_000, number, number)
    now_ms, total = 3 * DAY_MS, 3 * 24 * 360
    assert history.growth(DAY_MS, now_ms, total, total) == (24 * 360, 24 * 360, DAY_MS)
    assert history.growth(MINUTE_MS, now_ms, total, total) == (6, 6, MINUTE_MS)
    assert sum(map(len, history._looks)) <= (7 + 7 + 25) * 3
