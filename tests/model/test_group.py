"""The redelivery policy of a group."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.group import DEFAULT_BACKOFF_S, MAX_GROUP_ATTEMPTS, ExponentialBackoff, GroupConfig

curves = st.builds(
    ExponentialBackoff, st.integers(0, 10_000), st.integers(10_000, 43_200_000), st.floats(1, 1e6, allow_nan=False)
)


def test_each_attempt_waits_its_step_and_the_last_step_repeats() -> None:
    group = GroupConfig("g")
    assert [group.backoff_ms(attempt) for attempt in range(1, 19)] == [step * 1000 for step in DEFAULT_BACKOFF_S]
    assert group.backoff_ms(19) == group.backoff_ms(1000) == 7_200_000
    assert group.backoff_ms(0) == group.backoff_ms(1)


def test_an_exponential_backoff_grows_to_its_longest_wait_and_goes_before_the_steps() -> None:
    group = GroupConfig("g", backoff_s=(1,), exponential=ExponentialBackoff(100, 1000, 2))
    assert [group.backoff_ms(attempt) for attempt in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]


@given(curves, st.integers(1, MAX_GROUP_ATTEMPTS))
def test_a_later_attempt_never_waits_less_and_none_longer_than_the_longest(curve: ExponentialBackoff, at: int) -> None:
    assert 0 <= curve.after_ms(at) <= curve.after_ms(at + 1) <= curve.longest_ms
    assert curve.after_ms(1) == curve.initial_ms
