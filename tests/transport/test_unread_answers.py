from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConnectionFailed
from millstream.transport.connection_memory import SERVED_BYTES, UNREAD_LIMIT_S, UnreadAnswer, UnreadAnswers

MIB = 1024 * 1024


class Peers:
    """Connections that share 8 MiB. `unread` is what each has not read, whether or not it was noted."""

    def __init__(self) -> None:
        self.answers = UnreadAnswers(8 * MIB)
        self.went_on: list[str] = []
        self.given_up: dict[str, ConnectionFailed] = {}
        self.unread: dict[str, int] = {}
        self.held: dict[str, UnreadAnswer] = {}

    def leave(self, name: str, unread_bytes: int, now_s: float = 0.0) -> bool:
        self.unread[name] = unread_bytes
        if name not in self.held:
            self.held[name] = UnreadAnswer(
                lambda: self.unread[name], partial(self.went_on.append, name), partial(self._end, name)
            )
        return self.answers.note_unread(self.held[name], unread_bytes, now_s)

    def _end(self, name: str, error: ConnectionFailed) -> None:
        self.given_up[name] = error
        del self.held[name]


@pytest.fixture
def peers() -> Peers:
    return Peers()


def test_over_the_budget_only_those_are_served_who_have_read_nearly_all(peers: Peers) -> None:
    assert peers.leave("a", 8 * MIB)
    assert not peers.leave("b", MIB)
    assert peers.leave("c", SERVED_BYTES)
    peers.answers.end(peers.held.pop("a"))
    assert peers.went_on == ["b"]


def test_over_the_budget_who_reads_nothing_for_long_is_closed_and_who_reads_a_little_is_not(peers: Peers) -> None:
    peers.leave("unread", 5 * MIB)
    peers.leave("slow", 4 * MIB)
    peers.unread["slow"] -= 1
    peers.answers.sweep(UNREAD_LIMIT_S - 0.1)
    assert not peers.given_up
    peers.answers.sweep(UNREAD_LIMIT_S)
    assert list(peers.given_up) == ["unread"]
    assert peers.given_up["unread"].label == "MS-5016"
    assert peers.went_on == ["slow"]


def test_within_the_budget_nobody_is_closed(peers: Peers) -> None:
    peers.leave("a", 8 * MIB)
    peers.answers.sweep(1000.0)
    assert not peers.given_up


def test_far_over_the_budget_who_has_read_nothing_for_longest_is_closed_at_once(peers: Peers) -> None:
    for number in range(5):
        peers.leave(f"p{number}", 2 * MIB, number)
    peers.leave("p0", 2 * MIB - 1, 9)
    peers.leave("one more", MIB, 10)
    assert list(peers.given_up) == ["p1"]


def test_who_has_read_since_it_was_noted_is_not_the_one_that_is_closed_at_once(peers: Peers) -> None:
    for number in range(5):
        peers.leave(f"p{number}", 2 * MIB, number)
    peers.unread["p0"] -= 1
    peers.leave("one more", MIB, 10)
    assert list(peers.given_up) == ["p1"]


def test_nobody_is_closed_where_others_have_read_enough_meanwhile(peers: Peers) -> None:
    for number in range(5):
        peers.leave(f"p{number}", 2 * MIB, number)
    peers.unread["p0"] = MIB
    peers.leave("one more", MIB, 10)
    assert not peers.given_up


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3 * MIB), st.sampled_from([0.0, 1.0, 7.0])), max_size=60))
def test_whatever_is_left_unread_the_sum_is_right_and_bounded(steps: list[tuple[int, int, float]]) -> None:
    peers, now_s = Peers(), 0.0
    for number, unread_bytes, seconds in steps:
        name, now_s = f"p{number}", now_s + seconds
        if unread_bytes:
            peers.leave(name, unread_bytes, now_s)
        elif name in peers.held:
            peers.answers.end(peers.held.pop(name))
        peers.answers.sweep(now_s)
        assert peers.answers.used_bytes == sum(one.held_bytes for one in peers.held.values()) <= 10 * MIB
    for one in list(peers.held.values()):
        peers.answers.end(one)
    assert peers.answers.used_bytes == 0
