"""An object store in memory that fails as one of the network does, by plan: before or after a call took effect."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum

from millstream.tiered.objects import (
    MAX_DELETED_KEYS,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreAway,
    ObjectStoreDenied,
    check_key,
    check_range,
)

__all__ = ["FaultyObjects", "ObjectFault"]


class ObjectFault(Enum):
    """What goes wrong with a call."""

    BEFORE = "nothing is done, and the caller is told of an error"
    AFTER = "it is done, and the caller is told of an error"
    DENIED = "nothing is done, and trying again is said to be in vain"
    SHORT = "a read gives fewer bytes than were asked for, which a store notices"
    ALTERED = "a read gives a byte that is another one than was stored"
    PARTIAL_LIST = "a list ends early without a word"
    SLOW = "it takes longer"
    THROTTLED = "nothing is done, this time and the next ones"
    OVERWRITES = "a create-only put replaces what is there"


class FaultyObjects:
    """Objects in memory. `plan` are the faults of the next calls, None for none; without a plan none fails."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.plan: deque[ObjectFault | None] = deque()
        self.calls: list[str] = []
        """The names of all calls so far."""
        self._modified_ms: dict[str, int] = {}
        self._clock_ms = itertools.count(1)
        self._mutex = threading.Lock()

    def put(self, key: str, data: bytes, *, create_only: bool = False) -> None:
        """See `ObjectStore`."""
        fault = self._begin("put", check_key(key))
        if create_only and key in self.objects and fault is not ObjectFault.OVERWRITES:
            raise ObjectExists(key)
        self.objects[key] = bytes(data)
        self._modified_ms[key] = next(self._clock_ms)
        self._end(fault)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        [found] = self._read("get", key, [(start, end)])
        return found

    def get_many(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `ObjectStore`."""
        return self._read("get_many", key, ranges)

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore`."""
        self._end(self._begin("head", key))
        return self._info(key)

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        if len(keys) > MAX_DELETED_KEYS:
            raise ValueError(f"{len(keys)} keys are more than {MAX_DELETED_KEYS}")
        fault = self._begin("delete", " ".join(keys))
        for key in keys:
            self.objects.pop(check_key(key), None)
        self._end(fault)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore`."""
        fault = self._begin("list", prefix)
        self._end(fault)
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        if fault is ObjectFault.PARTIAL_LIST:
            keys = keys[: len(keys) // 2]
        return iter([self._info(key) for key in keys])

    def close(self) -> None:
        """See `ObjectStore`."""

    def _read(self, call: str, key: str, ranges: Sequence[tuple[int, int | None]]) -> list[bytes]:
        fault = self._begin(call, check_key(key))
        self._end(fault)
        if key not in self.objects:
            raise ObjectNotFound(key)
        data = self.objects[key]
        found = [data[slice(*check_range(key, len(data), start, end))] for start, end in ranges]
        if fault is ObjectFault.SHORT:
            raise ObjectStoreAway(f"it gave fewer bytes of {key!r} than were asked for")
        if fault is ObjectFault.ALTERED:
            found = [one and bytes([one[0] ^ 1]) + one[1:] for one in found]
        return found

    def _info(self, key: str) -> ObjectInfo:
        if key not in self.objects:
            raise ObjectNotFound(key)
        return ObjectInfo(key, len(self.objects[key]), self._modified_ms[key])

    def _begin(self, call: str, what: str) -> ObjectFault | None:
        with self._mutex:
            self.calls.append(call)
            fault = self.plan.popleft() if self.plan else None
        if fault is ObjectFault.BEFORE:
            raise ObjectStoreAway(f"{call} of {what}: an error by plan")
        if fault is ObjectFault.DENIED:
            raise ObjectStoreDenied(f"{call} of {what}: refused by plan")
        return fault

    @staticmethod
    def _end(fault: ObjectFault | None) -> None:
        if fault is ObjectFault.AFTER:
            raise ObjectStoreAway("the answer was lost by plan")
