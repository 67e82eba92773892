"""Caches the true atoms of values from earlier batches, by fingerprint."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

__all__ = ["CacheBudget", "FingerprintCache"]

_KEPT_CHARACTERS: Final = 200
"""A text up to this long is its own key: a fingerprint would cost more than the memory is worth."""

_ENTRY_BYTES: Final = 100
"""Of one entry without its key: its slot and the room between slots."""

_TRIED_VALUES: Final = 2_000
_TRIED_TURNS: Final = 4
"""Values and turns after which it is known whether a cache pays; the first turn, when it is empty, is not counted."""

_RESTED_VALUES: Final = 100_000
"""Values that pass a cache that does not pay before it is tried again."""

_SECRET: Final = os.urandom(16)
"""Makes fingerprints that nobody outside can bring to collide."""

_NOTHING: Final[tuple[int, ...]] = ()


def _fingerprint(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=_SECRET).digest()


class CacheBudget:
    """Bytes that the caches of one stage may take together; half of them is the young generation.

    When the young ones fill their half, every cache lets go of its old entries and the young ones are the old.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._young_bytes = 0
        self._old_bytes = 0
        self._caches: list[FingerprintCache] = []

    @property
    def used_bytes(self) -> int:
        """About how much memory the entries take."""
        return self._young_bytes + self._old_bytes

    def join(self, cache: FingerprintCache) -> None:
        """Lets a cache count against this budget."""
        self._caches.append(cache)

    def take(self, size_bytes: int) -> None:
        """Counts new entries."""
        self._young_bytes += size_bytes
        if self._young_bytes > self._limit_bytes // 2:
            self._old_bytes, self._young_bytes = self._young_bytes, 0
            for cache in self._caches:
                cache.age()


class FingerprintCache:
    """The true atoms of the values of one group, by value; switched off while finding them costs less than knowing.

    A value is known by itself or, where it is long, by a keyed 16-byte hash: values that agree in it are taken for
    one, which chance brings about once in 10^20 values.
    """

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self._young: dict[Hashable, tuple[int, ...]] = {}
        self._old: dict[Hashable, tuple[int, ...]] = {}
        self._shared: dict[tuple[int, ...], tuple[int, ...]] = {_NOTHING: _NOTHING}
        self.hits = 0
        self.misses = 0
        self.is_on = True
        self._resting = 0
        self._tried = _Trial()
        budget.join(self)

    def age(self) -> None:
        """The young entries become the old ones, which go."""
        self._old, self._young, self._shared = self._young, {}, {_NOTHING: _NOTHING}

    def look_up(
        self, keys: Sequence[Hashable], values: Sequence[Any], find: Callable[[Sequence[Any]], dict[int, list[int]]]
    ) -> dict[int, Sequence[int]]:
        """The true atoms by the number of the value, where there are any; `find` is asked about unknown values."""
        if not self.is_on:
            self._resting += len(values)
            self.misses += len(values)
            if self._resting > _RESTED_VALUES:
                self.is_on, self._resting, self._tried = True, 0, _Trial()
            return dict(find(values))
        began_ns = time.perf_counter_ns()
        found, missing = self._find_known(keys)
        probed_ns = time.perf_counter_ns()
        if missing:
            fresh = find([values[number] for number, _ in missing])
            found_ns = time.perf_counter_ns()
            self._keep(missing, fresh, found)
            kept_ns = time.perf_counter_ns() - found_ns
        else:
            found_ns, kept_ns = probed_ns, 0
        self._tried.note(len(keys), len(missing), probed_ns - began_ns + kept_ns, found_ns - probed_ns)
        if self._tried.is_over:
            self.is_on = self._tried.pays
            self._tried = _Trial()
            if not self.is_on:
                self._young, self._old = {}, {}
        return found

    def _find_known(self, keys: Sequence[Hashable]) -> tuple[dict[int, Sequence[int]], list[tuple[int, Hashable]]]:
        young, old = self._young.get, self._old.get
        found: dict[int, Sequence[int]] = {}
        missing = []
        again: dict[Hashable, tuple[int, ...]] = {}
        for number, key in enumerate(keys):
            if type(key) is str and len(key) > _KEPT_CHARACTERS:
                key = _fingerprint(key)
            atoms = young(key)
            if atoms is None:
                atoms = old(key)
                if atoms is None:
                    missing.append((number, key))
                    continue
                again[key] = atoms
            if atoms:
                found[number] = atoms
        self._put(again)
        self.hits += len(keys) - len(missing)
        self.misses += len(missing)
        return found, missing

    def _keep(
        self, missing: Sequence[tuple[int, Hashable]], fresh: dict[int, list[int]], found: dict[int, Sequence[int]]
    ) -> None:
        entries: dict[Hashable, tuple[int, ...]] = dict.fromkeys([key for _, key in missing], _NOTHING)
        for place, atoms in fresh.items():
            number, key = missing[place]
            kept = tuple(atoms)
            found[number] = entries[key] = self._shared.setdefault(kept, kept)
        self._put(entries)

    def _put(self, entries: dict[Hashable, tuple[int, ...]]) -> None:
        if entries:
            self._young.update(entries)
            texts_bytes = sum(map(sys.getsizeof, entries))
            self._budget.take(_ENTRY_BYTES * len(entries) + texts_bytes + 8 * sum(map(len, entries.values())))


class _Trial:
    """What knowing and finding cost over some values."""

    def __init__(self) -> None:
        self._turns = 0
        self._values = 0
        self._missed = 0
        self._knowing_ns = 0
        self._finding_ns = 0

    def note(self, values: int, missed: int, knowing_ns: int, finding_ns: int) -> None:
        self._turns += 1
        if self._turns == 1:
            return
        self._values += values
        self._missed += missed
        self._knowing_ns += knowing_ns
        self._finding_ns += finding_ns

    @property
    def is_over(self) -> bool:
        """Whether enough was seen."""
        return self._turns > _TRIED_TURNS and self._values >= _TRIED_VALUES

    @property
    def pays(self) -> bool:
        """Whether what the hits saved is more than all that the cache took."""
        if not self._missed:
            return True
        saved_ns = self._finding_ns / self._missed * (self._values - self._missed)
        return saved_ns > self._knowing_ns
