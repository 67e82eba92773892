"""Counters by key are bounded, and no counter ever jumps back."""

from __future__ import annotations

from millstream.telemetry.counters import Counters, Histogram


def make(capacity: int) -> Counters[str, list[int]]:
    return Counters(list, capacity)


def test_a_key_has_one_value_for_good() -> None:
    counters = make(2)
    counters["a"].append(1)
    counters["a"].append(2)
    assert dict(counters.rows()) == {"a": [1, 2]}


def test_keys_beyond_the_capacity_share_one_value_and_the_first_ones_keep_theirs() -> None:
    counters = make(2)
    for number, key in enumerate("abcdacd"):
        counters[key].append(number)
    assert dict(counters.rows()) == {"a": [0, 4], "b": [1], None: [2, 3, 5, 6]}
    assert len(counters) == 2


def test_a_key_that_goes_makes_room_for_another_one() -> None:
    counters = make(1)
    counters["a"].append(1)
    counters["b"].append(2)
    del counters["a"]
    counters["b"].append(3)
    assert dict(counters.rows()) == {"b": [3], None: [2]}


def test_a_value_on_a_bound_counts_below_it() -> None:
    histogram = Histogram((10, 20))
    for value in (0, 10, 11, 20, 21):
        histogram.add(value)
    histogram.add(15, times=3)
    assert histogram.counts == [2, 5, 1]
    assert histogram.total == 107
