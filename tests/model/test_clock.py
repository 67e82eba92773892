"""The clock that tests move by hand."""

import pytest

from millstream.model.clock import ManualClock, SystemClock


def test_a_manual_clock_moves_only_when_told_to() -> None:
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.now_ms(), clock.monotonic_s()) == (1000, 1000, 0)
    clock.advance_ms(250)
    assert (clock.now_ms(), clock.monotonic_s()) == (1250, 0.25)


def test_a_stepping_clock_moves_at_each_reading() -> None:
    clock = ManualClock(0, step_ms=1)
    assert [clock.now_ms() for _ in range(3)] == [0, 1, 2]


def test_a_clock_does_not_go_backward() -> None:
    with pytest.raises(ValueError, match="forward"):
        ManualClock().advance_ms(-1)


def test_the_system_clock_tells_milliseconds() -> None:
    assert SystemClock().now_ms() > 1_600_000_000_000
