"""The clock that tests move by hand."""

import pytest

from millstream.model.clock import BackedClock, ManualClock, StepWatch, SystemClock, WatchedClock


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


def looks(*moments: tuple[int, float]) -> list[int]:
    watch = StepWatch(0, 0.0)
    return [watch.look(wall_ms, monotonic_s) for wall_ms, monotonic_s in moments]


def test_a_step_is_found_once_with_its_size_and_direction() -> None:
    assert looks((1_000, 1.0), (3_602_000, 2.0), (3_603_000, 3.0), (4_000, 4.0), (5_000, 5.0)) == [
        0, 3_600_000, 0, -3_600_000, 0,
    ]  # fmt: skip


def test_a_clock_that_is_brought_into_line_slowly_never_takes_a_step() -> None:
    # 500 millionths, the fastest that systems do, for a week.
    assert set(looks(*((hour * 3_601_800, hour * 3_600.0) for hour in range(168)))) == {0}


def test_a_watched_clock_tells_of_a_step_before_the_reading_returns() -> None:
    clock = ManualClock(0)
    watched, seen = WatchedClock(clock), list[int]()
    watched.on_step.append(seen.append)
    clock.set_wall(-5_000)
    assert watched.now_ms() == -5_000
    clock.advance_ms(10_000)
    assert (watched.now_ms(), watched.monotonic_s()) == (5_000, 10)
    assert seen == [-5_000]


class Stopped(ManualClock):
    """The process is stopped for 2 s each time it has read the wall clock."""

    def now_ms(self) -> int:
        now_ms = super().now_ms()
        self.advance_ms(2_000)
        return now_ms


def test_a_process_that_is_stopped_between_its_two_readings_sees_no_step() -> None:
    watched, seen = WatchedClock(Stopped()), list[int]()
    watched.on_step.append(seen.append)
    for _ in range(3):
        watched.now_ms()
    assert seen == []


def test_a_backed_clock_follows_the_wall_clock_back_and_not_forward() -> None:
    clock = ManualClock(1_000_000)
    backed = BackedClock(clock)
    clock.set_wall(5_000_000)
    clock.advance_ms(1_000)
    assert backed.now_ms() == 1_001_000
    clock.set_wall(-5_500_000)
    assert backed.now_ms() == 501_000
