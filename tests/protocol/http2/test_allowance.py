from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.http2.allowance import BURST, PER_SECOND, Allowance


def test_a_burst_may_come_at_once_and_not_one_frame_more() -> None:
    allowance = Allowance()
    assert all(allowance.spend(1, 5.0) for _ in range(BURST))
    assert not allowance.spend(1, 5.0)


def test_each_second_lets_as_many_more_come() -> None:
    allowance = Allowance()
    assert allowance.spend(BURST, 1e9)
    assert allowance.spend(PER_SECOND, 1e9 + 1)
    assert not allowance.spend(1, 1e9 + 1)


def test_what_is_earned_lets_as_many_more_come_and_never_more_than_a_burst() -> None:
    allowance = Allowance()
    assert allowance.spend(BURST, 0.0)
    allowance.earn(3)
    assert allowance.spend(3, 0.0)
    allowance.earn(10 * BURST)
    assert allowance.spend(BURST, 0.0)
    assert not allowance.spend(1, 0.0)


@given(st.floats(0, 1e9), st.lists(st.tuples(st.integers(0, 2_000), st.floats(0, 3.0)), max_size=100))
def test_in_any_span_of_time_no_more_come_than_a_burst_and_what_the_time_lets(
    began_s: float, steps: list[tuple[int, float]]
) -> None:
    allowance, now_s = Allowance(), began_s
    taken: list[tuple[float, int]] = []
    for count, seconds in steps:
        now_s += seconds
        if not allowance.spend(count, now_s):
            break
        taken.append((now_s, count))
    for start, (since_s, _) in enumerate(taken):
        total = 0
        for at_s, count in taken[start:]:
            total += count
            assert total <= BURST + (at_s - since_s) * PER_SECOND + 1
