from __future__ import annotations

import pytest

from millstream.streams.state.worker_cache import WorkerCache


def test_the_value_that_was_used_longest_ago_goes_first_and_is_closed() -> None:
    closed: list[str] = []
    cache = WorkerCache[int, str](2, close=closed.append)
    cache.put(1, "one")
    cache.put(2, "two")
    assert cache.get(1) == "one"
    cache.put(3, "three")
    assert (closed, cache.items()) == (["two"], [(1, "one"), (3, "three")])
    assert cache.get(2) is None


def test_a_value_is_made_once() -> None:
    cache = WorkerCache[int, list[int]](2)
    made = cache.get_or_make(1, list)
    assert cache.get_or_make(1, list) is made

    def fails() -> list[int]:
        raise KeyError

    with pytest.raises(KeyError):
        cache.get_or_make(2, fails)
    assert cache.items() == [(1, made)]


def test_what_is_taken_out_is_gone_until_it_is_put_back_and_stays_open() -> None:
    closed: list[str] = []
    cache = WorkerCache[int, str](2, close=closed.append)
    cache.put(1, "one")
    assert (cache.take_out(1), cache.take_out(1)) == ("one", None)
    cache.put(1, "one")
    assert (closed, cache.items()) == ([], [(1, "one")])


def test_a_value_in_the_place_of_another_one_closes_it() -> None:
    closed: list[str] = []
    cache = WorkerCache[int, str](2, close=closed.append)
    for value in ("before", "after", "after"):
        cache.put(1, value)
    assert closed == ["before"]
    cache.discard(2)
    cache.put(2, "two")
    cache.clear()
    assert (closed, cache.items()) == (["before", "after", "two"], [])
