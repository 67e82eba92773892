from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConnectionFailed
from millstream.transport.connection_memory import (
    AHEAD_LIMIT_S,
    FRAME_LIMIT_S,
    SMALL_BYTES,
    STALL_LIMIT_S,
    HalfFrame,
    HalfFrames,
)

MIB = 1024 * 1024


class Peers:
    """Frames of a budget of 8 MiB, of which 2 MiB may be missing ahead."""

    def __init__(self) -> None:
        self.frames = HalfFrames(8 * MIB, 2 * MIB)
        self.went_on: list[str] = []
        self.given_up: dict[str, ConnectionFailed] = {}
        self.held: dict[str, HalfFrame] = {}
        self.now_s = 0.0

    def send(self, name: str, held_bytes: int, missing_bytes: int) -> bool:
        begins = name not in self.held
        frame = self.held.setdefault(name, HalfFrame(self._note(name), lambda error: self._end(name, error)))
        return self.frames.note_bytes(frame, held_bytes, missing_bytes, self.now_s, begins=begins)

    def end(self, name: str) -> None:
        self.frames.end(self.held.pop(name), self.now_s)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.frames.sweep(self.now_s)

    def _note(self, name: str) -> Callable[[], None]:
        return lambda: self.went_on.append(name)

    def _end(self, name: str, error: ConnectionFailed) -> None:
        self.given_up[name] = error
        del self.held[name]


@pytest.fixture
def peers() -> Peers:
    return Peers()


def test_within_the_budget_every_frame_is_read_on(peers: Peers) -> None:
    assert peers.send("a", 4 * MIB, 4 * MIB)
    assert peers.send("b", 4 * MIB, 12 * MIB)
    assert (peers.frames.used_bytes, peers.frames.waiting) == (8 * MIB, 0)


def test_over_the_budget_a_large_frame_waits_and_a_small_one_goes_on(peers: Peers) -> None:
    peers.send("a", 8 * MIB, 8 * MIB)
    assert not peers.send("b", MIB, 4 * MIB)
    assert peers.send("small", 100, SMALL_BYTES)
    peers.end("a")
    assert peers.went_on == ["b"]
    assert peers.frames.waiting == 0


def test_frames_that_all_wait_for_each_other_end_one_after_the_other(peers: Peers) -> None:
    names = [f"f{number}" for number in range(9)]
    for name in names:
        peers.send(name, MIB - 1, 15 * MIB // 8)
    reading = set(names) - {name for name in names if peers.held[name].waits}
    ended = 0
    while reading:
        name = reading.pop()
        peers.send(name, 2 * MIB, 0)
        peers.end(name)
        ended += 1
        reading |= set(peers.went_on) & set(peers.held)
        peers.went_on.clear()
    assert ended == 9
    assert (peers.frames.used_bytes, peers.frames.waiting) == (0, 0)


def test_those_that_miss_the_least_go_on_first(peers: Peers) -> None:
    peers.send("a", 8 * MIB, 8 * MIB)
    for name, missing in (("far", 12 * MIB), ("near", 3 * MIB)):
        assert not peers.send(name, 100, missing)
    peers.send("a", 8 * MIB + 1, 0)
    peers.end("a")
    assert peers.went_on == ["near", "far"]


def test_far_over_the_budget_the_frame_without_a_byte_for_longest_is_given_up(peers: Peers) -> None:
    for number in range(5):
        peers.send(f"f{number}", 2 * MIB, 14 * MIB)
        peers.now_s += 0.1
    peers.send("f0", 2 * MIB + 1, 14 * MIB - 1)
    peers.send("small", 100, 100)
    assert list(peers.given_up) == ["f1"]
    assert peers.given_up["f1"].label == "MS-5015"
    assert peers.frames.used_bytes <= 10 * MIB


def test_a_frame_that_does_not_arrive_in_time_is_given_up_in_any_case(peers: Peers) -> None:
    peers.send("a", 10, 100)
    for number in range(int(FRAME_LIMIT_S)):
        peers.wait(1.0)
        if number < FRAME_LIMIT_S - 1:
            assert peers.send("a", 11 + number, 100 - number)
    assert peers.given_up["a"].label == "MS-5012"


def test_a_stalled_frame_is_given_up_as_soon_as_others_wait_for_its_memory(peers: Peers) -> None:
    peers.send("stalled", 8 * MIB, 8 * MIB)
    peers.wait(STALL_LIMIT_S)
    assert not peers.given_up
    assert not peers.send("b", MIB, 4 * MIB)
    peers.wait(0)
    assert list(peers.given_up) == ["stalled"]
    assert peers.went_on == ["b"]


def test_what_a_frame_had_to_wait_does_not_count_against_it(peers: Peers) -> None:
    peers.send("a", 8 * MIB, 8 * MIB)
    assert not peers.send("b", MIB, 4 * MIB)
    for _ in range(int(FRAME_LIMIT_S) - 1):
        peers.now_s += 1
        peers.send("a", 8 * MIB, SMALL_BYTES)
        peers.frames.sweep(peers.now_s)
    assert peers.held["b"].waits
    peers.end("a")
    peers.wait(FRAME_LIMIT_S - 1)
    assert not peers.given_up


def test_one_that_is_read_ahead_of_others_has_little_time(peers: Peers) -> None:
    peers.send("a", 8 * MIB, 8 * MIB)
    assert peers.send("ahead", MIB, 2 * MIB)
    assert not peers.send("next", MIB - 1, 2 * MIB)
    for _ in range(int(AHEAD_LIMIT_S)):
        peers.send("a", 8 * MIB, SMALL_BYTES)
        peers.send("ahead", MIB, 2 * MIB)
        peers.wait(1.0)
    assert list(peers.given_up) == ["ahead"]
    assert peers.went_on == ["next"]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(0, 3 * MIB), st.integers(0, 16 * MIB), st.sampled_from([0.0, 1.0, 7.0])
        ),
        max_size=60,
    )
)
def test_whatever_arrives_the_sum_is_right_and_bounded(steps: list[tuple[int, int, int, float]]) -> None:
    peers = Peers()
    for number, held_bytes, missing_bytes, seconds in steps:
        name = f"f{number}"
        if held_bytes:
            peers.send(name, held_bytes, missing_bytes)
        elif name in peers.held:
            peers.end(name)
        peers.wait(seconds)
        assert peers.frames.used_bytes == sum(frame.held_bytes for frame in peers.held.values()) <= 10 * MIB
        assert peers.frames.waiting == sum(frame.waits for frame in peers.held.values())
    for name in list(peers.held):
        peers.end(name)
    assert (peers.frames.used_bytes, peers.frames.waiting) == (0, 0)
