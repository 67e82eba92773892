"""A cache in a worker process that outlives single Spark tasks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["WorkerCache"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class WorkerCache(Generic[_Key, _Value]):
    """At most `limit` values of this process; the one that was used longest ago goes first, and is closed by `close`.

    A cache only saves work: what is not in it is read or made again. It is not for several threads at once. Processes
    that are forked begin with a copy of what was there.
    """

    def __init__(self, limit: int, *, close: Callable[[_Value], None] | None = None) -> None:
        self._limit = limit
        self._close = close
        self._values: OrderedDict[_Key, _Value] = OrderedDict()

    def get(self, key: _Key) -> _Value | None:
        """The value, which is the one used last from here on; None where there is none."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def get_or_make(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """The value, made and kept where there is none. What `make` raises is raised, and nothing is kept."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def take_out(self, key: _Key) -> _Value | None:
        """The value, which the caller may change or spoil: it is kept again by `put` alone. It is not closed."""
        return self._values.pop(key, None)

    def put(self, key: _Key, value: _Value) -> None:
        """Keep a value as the one used last, in the place of what was there; others go that are too many."""
        before = self._values.pop(key, None)
        self._values[key] = value
        if before is not None and before is not value:
            self._end(before)
        while len(self._values) > self._limit:
            self._end(self._values.popitem(last=False)[1])

    def discard(self, key: _Key) -> None:
        """Let a value go, if it is there."""
        before = self._values.pop(key, None)
        if before is not None:
            self._end(before)

    def items(self) -> list[tuple[_Key, _Value]]:
        """All that is kept, what was used longest ago first."""
        return list(self._values.items())

    def clear(self) -> None:
        """Let all go."""
        for key in list(self._values):
            self.discard(key)

    def _end(self, value: _Value) -> None:
        if self._close is not None:
            self._close(value)
