"""Counters by key, of which there are only so many: what one message costs is a look into a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

__all__ = ["Counters"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Counters(dict[_K, _V]):
    """Values by key, made at first use; once there are `capacity` of them, all further keys share `other`.

    The first keys keep their own value, so that no counter ever jumps back; a key that is deleted makes room.
    """

    def __init__(self, make: Callable[[], _V], capacity: int) -> None:
        super().__init__()
        self._make = make
        self._capacity = capacity
        self.other: _V | None = None
        """What keys beyond the capacity share; None while all have a value of their own."""

    def __missing__(self, key: _K) -> _V:
        if len(self) < self._capacity:
            value = self[key] = self._make()
            return value
        if self.other is None:
            self.other = self._make()
        return self.other

    def rows(self) -> Iterator[tuple[_K | None, _V]]:
        """All keys with their values as of now, and at last None with what the others share, if there are any."""
        yield from list(self.items())
        if self.other is not None:
            yield None, self.other
