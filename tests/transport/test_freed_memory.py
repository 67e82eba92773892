"""When a process gives freed memory back: by clocks and figures of the test, and for real."""

from __future__ import annotations

import ctypes

import pytest

from millstream.model.clock import ManualClock
from millstream.transport.freed_memory import FreedMemory, resident_bytes, trim_heaps

MIB = 1024 * 1024


class Process:
    """Its memory is what the test says, of which a trim leaves what is live."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.resident = self.live = 100 * MIB
        self.trims = 0
        self.collections = 0
        self.trim_takes_s = self.collection_takes_s = 0.0
        self.spent_s = 0.0
        self.freed = FreedMemory(
            trim=self._trim, collect=self._collect, resident=lambda: self.resident, timer=lambda: self.spent_s
        )

    def _trim(self) -> None:
        self.trims += 1
        self.spent_s += self.trim_takes_s
        self.resident = min(self.resident, self.live)

    def _collect(self) -> None:
        self.collections += 1
        self.spent_s += self.collection_takes_s

    def sweep(self, held_bytes: int, after_s: float = 1.0) -> None:
        self.clock.advance_ms(int(after_s * 1000))
        self.freed.sweep(held_bytes, self.clock.monotonic_s())

    def free_much(self, held_bytes: int = 64 * MIB) -> None:
        """Clients held that much, and have gone for long enough."""
        self.sweep(held_bytes, 300)
        for _ in range(5):
            self.sweep(0)


@pytest.fixture
def process() -> Process:
    return Process()


def test_holes_are_given_back_as_the_process_grows_while_clients_hold_much(process: Process) -> None:
    process.sweep(64 * MIB)
    process.resident = 200 * MIB
    process.sweep(64 * MIB)
    assert process.resident == process.live
    process.resident = 120 * MIB
    process.sweep(64 * MIB)
    assert process.trims == 1


def test_growth_counts_from_the_least_that_the_process_had(process: Process) -> None:
    process.resident = 200 * MIB
    process.sweep(64 * MIB)
    process.resident = 100 * MIB
    process.sweep(64 * MIB)
    process.resident = 140 * MIB
    process.sweep(64 * MIB)
    assert process.trims == 1


def test_buffers_that_are_in_use_are_looked_through_no_second_time(process: Process) -> None:
    process.sweep(64 * MIB)
    process.resident = process.live = 300 * MIB
    for _ in range(10):
        process.sweep(192 * MIB)
    assert process.trims == 1


def test_a_process_that_grows_a_little_keeps_its_memory(process: Process) -> None:
    process.sweep(MIB)
    for grown in range(1, 10):
        process.resident = (100 + 12 * grown) * MIB
        process.sweep(MIB)
    assert process.trims == 0


def test_what_came_and_went_between_two_sweeps_is_given_back(process: Process) -> None:
    process.sweep(0)
    process.resident = 300 * MIB
    for _ in range(5):
        process.sweep(0)
    assert process.resident == process.live
    assert (process.collections, process.trims) == (1, 1)


def test_a_process_that_needs_more_for_good_is_looked_through_once(process: Process) -> None:
    process.sweep(0)
    process.resident = process.live = 300 * MIB
    for _ in range(300):
        process.sweep(MIB)
    assert (process.collections, process.trims) == (1, 1)


def test_work_that_takes_long_is_done_seldom(process: Process) -> None:
    process.trim_takes_s = 0.2
    process.sweep(64 * MIB)
    for _ in range(100):
        process.resident = 300 * MIB
        process.sweep(64 * MIB)
    assert process.spent_s <= 0.05 * 100 + 0.2
    assert process.trims >= 5


def test_what_lies_in_circles_is_freed_once_much_was_freed(process: Process) -> None:
    process.free_much()
    assert (process.collections, process.trims) == (1, 1)


def test_a_busy_server_that_frees_less_again_and_again_searches_for_no_garbage(process: Process) -> None:
    for _ in range(3):
        process.free_much(32 * MIB)
    assert (process.collections, process.trims) == (0, 3)


def test_a_search_for_garbage_that_takes_long_comes_seldom_and_memory_is_given_back_all_the_same(
    process: Process,
) -> None:
    process.collection_takes_s = 4.0
    for _ in range(5):
        process.free_much()
    assert (process.collections, process.trims) == (2, 5)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="a C library that gives nothing back")
def test_the_holes_between_buffers_go_back_to_the_system() -> None:
    buffers = [bytearray(b"x" * 100_000) for _ in range(2_000)]
    # Half of 190 MiB are free then, between those that are not.
    del buffers[::2]
    before = resident_bytes()
    trim_heaps()
    assert resident_bytes() < before - 50 * MIB
