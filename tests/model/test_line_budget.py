"""The budget of lines: a few at once, then one a second, and nothing is left out without being counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.clock import ManualClock
from millstream.model.line_budget import LineBudget


def test_one_line_a_second_tells_how_many_were_left_out_before_it() -> None:
    clock = ManualClock()
    budget = LineBudget(clock)
    assert [budget.admit() for _ in range(4)] == [0, None, None, None]
    clock.advance_ms(999)
    assert budget.admit() is None
    clock.advance_ms(1)
    assert [budget.admit(), budget.admit()] == [4, None]


def test_a_quiet_time_saves_up_a_burst_and_no_more() -> None:
    clock = ManualClock()
    budget = LineBudget(clock, burst_lines=3)
    clock.advance_ms(3_600_000)
    assert [budget.admit() for _ in range(5)] == [0, 0, 0, None, None]


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=200), st.integers(1, 5))
def test_every_line_is_written_or_counted_and_the_rate_is_kept(pauses_ms: list[int], burst: int) -> None:
    clock = ManualClock()
    budget = LineBudget(clock, burst_lines=burst)
    written = counted = 0
    for pause_ms in pauses_ms:
        clock.advance_ms(pause_ms)
        left_out = budget.admit()
        if left_out is not None:
            written, counted = written + 1, counted + left_out
    clock.advance_ms(60_000)
    last = budget.admit()
    assert last is not None
    assert written + counted + last == len(pauses_ms)
    assert written <= burst + sum(pauses_ms) / 1000
