"""A steady rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.bench.load import Pace


def test_messages_are_due_at_even_distances_and_the_first_at_once() -> None:
    pace = Pace(per_second=4, start_s=100.0)
    assert [pace.due_s(number) for number in range(3)] == [100.0, 100.25, 100.5]
    assert [pace.due_count(now_s) for now_s in (99.9, 100.0, 100.2, 100.25, 101.0)] == [0, 1, 1, 2, 5]


def test_the_pause_keeps_to_the_rate() -> None:
    pace = Pace(per_second=10, start_s=100.0)
    assert [pace.pause_s(number, now_s) for number, now_s in ((0, 100.0), (10, 100.25), (10, 105.0))] == [0, 0.75, 0]


def test_what_came_late_is_made_up_for() -> None:
    assert Pace(per_second=100, start_s=0.0).due_count(10.0) == 1001


@given(st.floats(0.01, 1_000_000), st.integers(0, 100_000))
def test_a_message_is_counted_once_its_time_has_come(per_second: float, number: int) -> None:
    pace = Pace(per_second, start_s=0.0)
    assert pace.due_count(pace.due_s(number) * (1 + 1e-9) + 1e-9) >= number + 1
