"""An object store that now and then does what stores behind a network do, over another one that keeps the objects."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from crash.faulty_objects import ObjectFault
from millstream.tiered.objects import ObjectInfo, ObjectStore, ObjectStoreAway, ObjectStoreDenied

__all__ = ["UnreliableObjects"]

SLOW_S = 0.05
"""How long a slow call takes longer."""

THROTTLED_CALLS = 12
"""Calls that a store refuses one after another while it throttles."""

_T = TypeVar("_T")


@dataclass
class UnreliableObjects:
    """`fault_rate` of the calls go wrong, in a way that `chance` draws; `ignores_conditions` makes create-only puts
    replace what is there, as some stores do. `age` gives the time of an object on the clock of its reader.
    """

    inner: ObjectStore
    chance: random.Random
    fault_rate: float
    ignores_conditions: bool = False
    age: Callable[[int], int] = lambda modified_ms: modified_ms
    faults: dict[str, int] = field(default_factory=dict)
    _throttled: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def put(self, key: str, data: bytes, *, create_only: bool = False) -> None:
        """See `ObjectStore`."""
        is_checked = create_only and not self.ignores_conditions
        self._call("put", lambda: self.inner.put(key, data, create_only=is_checked))

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        return self._call("read", lambda: [self.inner.get(key, start, end)])[0]

    def get_many(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `ObjectStore`."""
        return self._call("read", lambda: self.inner.get_many(key, ranges))

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore`."""
        found = self._call("head", lambda: self.inner.head(key))
        return replace(found, modified_ms=self.age(found.modified_ms))

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        self._call("delete", lambda: self.inner.delete(keys))

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore`."""
        found = self._call("list", lambda: list(self.inner.list(prefix, after)))
        return (replace(one, modified_ms=self.age(one.modified_ms)) for one in found)

    def close(self) -> None:
        """See `ObjectStore`."""
        self.inner.close()

    def _call(self, call: str, act: Callable[[], _T]) -> _T:
        fault = self._draw(call)
        if fault is ObjectFault.BEFORE:
            raise ObjectStoreAway(f"{call}: an error by chance")
        if fault is ObjectFault.DENIED:
            raise ObjectStoreDenied(f"{call}: refused by chance")
        if fault is ObjectFault.SLOW:
            time.sleep(SLOW_S)
        found = act()
        if fault is ObjectFault.AFTER:
            raise ObjectStoreAway(f"{call}: the answer was lost by chance")
        if fault is ObjectFault.SHORT:
            raise ObjectStoreAway(f"{call}: it gave fewer bytes than were asked for")
        if isinstance(found, list) and fault is ObjectFault.ALTERED:
            return [one and bytes([one[0] ^ 1]) + one[1:] for one in found]  # type: ignore[return-value]
        if isinstance(found, list) and fault is ObjectFault.PARTIAL_LIST:
            return list(islice(found, len(found) // 2))  # type: ignore[return-value]
        return found

    def _draw(self, call: str) -> ObjectFault | None:
        with self._mutex:
            if self._throttled:
                self._throttled -= 1
                return ObjectFault.BEFORE
            if self.chance.random() >= self.fault_rate:
                return None
            fault = self.chance.choice(_FAULTS[call])
            if fault is ObjectFault.THROTTLED:
                self._throttled, fault = self.chance.randrange(THROTTLED_CALLS), ObjectFault.BEFORE
            self.faults[fault.name] = self.faults.get(fault.name, 0) + 1
            return fault


_ANYWHERE = (ObjectFault.BEFORE, ObjectFault.AFTER, ObjectFault.DENIED, ObjectFault.SLOW, ObjectFault.THROTTLED)
_FAULTS = {
    "put": _ANYWHERE,
    "delete": _ANYWHERE,
    "head": _ANYWHERE,
    "list": (*_ANYWHERE, ObjectFault.PARTIAL_LIST),
    "read": (*_ANYWHERE, ObjectFault.SHORT, ObjectFault.ALTERED),
}
