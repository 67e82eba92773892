"""How long things took, in buckets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.telemetry.counters import LatencyRecorder

PERCENT = st.sampled_from([0.1, 50.0, 90.0, 99.0, 99.9, 100.0])


@given(st.lists(st.floats(0, 5_000), min_size=1, max_size=200), PERCENT)
def test_a_percentile_is_that_of_the_sorted_values_or_a_little_above(seconds: list[float], percent: float) -> None:
    recorder = LatencyRecorder()
    for value in seconds:
        recorder.add(value)
    exact_us = sorted(round(value * 1e6) for value in seconds)[max(1, math.ceil(len(seconds) * percent / 100)) - 1]
    told_us = (recorder.percentile_ms(percent) or 0) * 1000
    assert exact_us - 1e-3 <= told_us <= exact_us * (1 + 1 / 128) + 1e-3


def test_the_maximum_is_exact_and_no_percentile_is_above_it() -> None:
    recorder = LatencyRecorder()
    recorder.add(1.234567)
    assert recorder.max_ms == recorder.percentile_ms(50) == pytest.approx(1234.567)


def test_nothing_is_known_of_nothing() -> None:
    assert (LatencyRecorder().percentile_ms(50), LatencyRecorder().max_ms) == (None, None)


def test_times_out_of_range_count_as_the_nearest_one() -> None:
    recorder = LatencyRecorder()
    recorder.add(-1.0)
    assert recorder.percentile_ms(50) == 0
    recorder.add(1e9)
    assert recorder.count == 2
    assert recorder.max_ms == 1e12
