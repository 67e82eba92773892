"""The cache of values answers as the engines do, stays within its bound, and goes where it does not pay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.rules.stage import fingerprints
from millstream.streams.rules.stage.fingerprints import CacheBudget, FingerprintCache

LONG = "x" * 300


class Clock:
    """Goes on by a microsecond when it is read, and as much as a test says."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(fingerprints, "time", clock)
    return clock


def find(values: Sequence[str]) -> dict[int, list[int]]:
    return {place: [len(value), 7] for place, value in enumerate(values) if "a" in value}


def look_up(cache, values):
    return {place: list(atoms) for place, atoms in cache.look_up(values, values, find).items()}


@given(
    st.lists(
        st.lists(st.sampled_from(["", "a", "b", f"{LONG}a", f"{LONG}b", "\ud800a", f"{LONG}\ud800"]), unique=True)
    ),
    st.sampled_from([0, 600, 10_000]),
)
def test_what_is_known_is_what_would_be_found(batches, limit_bytes):
    cache = FingerprintCache(CacheBudget(limit_bytes))
    for values in batches:
        assert look_up(cache, values) == find(values)


def test_known_values_are_not_looked_for_again():
    cache = FingerprintCache(CacheBudget(1 << 20))
    look_up(cache, ["a", "b", f"{LONG}a"])
    asked = []
    cache.look_up(["b", f"{LONG}a", "c"], ["b", f"{LONG}a", "c"], lambda values: asked.extend(values) or {})
    assert asked == ["c"]
    assert (cache.hits, cache.misses) == (2, 4)


def test_the_oldest_values_go_when_memory_is_full(clock):
    def slowly(values):
        clock.now_ns += 1_000_000
        return find(values)

    budget = CacheBudget(100_000)
    caches = [FingerprintCache(budget), FingerprintCache(budget)]
    for number in range(5_000):
        values = [f"value {number}", "stays"]
        caches[number % 2].look_up(values, values, slowly)
        assert budget.used_bytes <= 101_000
    known = sum(len(cache._young) + len(cache._old) for cache in caches)
    assert 200 < known < 1_000
    hits = caches[0].hits
    look_up(caches[0], ["stays", "value 0", "value 4998"])
    assert caches[0].hits == hits + 2


def test_a_cache_that_does_not_pay_is_off_for_a_while(monkeypatch, clock):
    monkeypatch.setattr(fingerprints, "_RESTED_VALUES", 10_000)
    cache = FingerprintCache(CacheBudget(1 << 24))
    states = []
    for batch in range(40):
        look_up(cache, [f"new {batch} {number}" for number in range(1_000)])
        states.append(cache.is_on)
    assert states[:21] == [True] * 4 + [False] * 11 + [True] * 5 + [False]


def test_a_cache_that_pays_stays(clock):
    cache = FingerprintCache(CacheBudget(1 << 24))
    values = [f"value {number} a" for number in range(1_000)]
    for _ in range(12):
        look_up(cache, values)
    assert cache.is_on
    assert cache.hits == 11_000
