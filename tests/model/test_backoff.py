"""Waits between attempts: their bounds, their growth and their chance."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.backoff import DEFAULT_JITTER, Backoff

seconds = st.floats(0, 1e6, allow_nan=False)
attempts = st.integers(0, 10_000)
shares = st.floats(0, 1)
multipliers = st.floats(1, 100)


def test_a_wait_doubles_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0, random=lambda: 0.0)
    assert [backoff.wait_s(attempt) for attempt in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_waits_of_one_length_do_not_grow() -> None:
    backoff = Backoff(0.5, 3.0, multiplier=1, jitter=0)
    assert [backoff.wait_s(attempt) for attempt in (0, 1, 1000)] == [0.5, 0.5, 0.5]


@given(seconds, seconds, multipliers, attempts)
def test_a_later_wait_is_never_shorter_and_none_longer_than_the_longest(
    first_s: float, longest_s: float, multiplier: float, attempt: int
) -> None:
    backoff = Backoff(first_s, longest_s, multiplier, random=lambda: 0.0)
    assert 0 <= backoff.wait_s(attempt) <= backoff.wait_s(attempt + 1) <= longest_s
    assert backoff.wait_s(0) == min(first_s, longest_s)


@given(seconds, seconds, shares, attempts, st.integers())
def test_chance_takes_off_a_wait_no_more_than_its_share(
    first_s: float, longest_s: float, jitter: float, attempt: int, seed: int
) -> None:
    full_s = Backoff(first_s, longest_s, jitter=0).wait_s(attempt)
    wait_s = Backoff(first_s, longest_s, jitter=jitter, random=Random(seed).random).wait_s(attempt)
    least_s = full_s * (1 - jitter)
    assert least_s <= wait_s <= full_s or math.isclose(wait_s, least_s)


@given(st.integers())
def test_the_same_seed_gives_the_same_waits(seed: int) -> None:
    first, second = (Backoff(1, 60, random=Random(seed).random) for _ in range(2))
    assert [first.wait_s(attempt) for attempt in range(20)] == [second.wait_s(attempt) for attempt in range(20)]


def test_those_who_fail_together_come_back_apart() -> None:
    backoff = Backoff(10, 10, random=Random(7).random)
    waits = sorted(backoff.wait_s(0) for _ in range(100))
    assert waits[-1] - waits[0] > 10 * DEFAULT_JITTER * 0.9
    assert all(later > earlier for earlier, later in pairwise(waits))


def test_a_backoff_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Backoff(1, 2))) == Backoff(1, 2)
