"""The state of one operator in one key group: keyed tables and timers, with the changes of a turn.

Values are whatever pickle keeps. A value that is changed in place has to be `put` again, or the change is lost with
the process.
"""

from __future__ import annotations

import heapq
import io
import pickle
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sized
from itertools import islice, takewhile
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

__all__ = ["GroupedTable", "KeyTimers", "KeyedTable", "OpenEnds", "OperatorState", "SetTable", "part_change"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_Changed = dict[str, tuple[dict[Any, Any], list[Any]]]

ENTRIES_PER_PICKLE: Final = 1_000
"""Entries of a table in one pickle of a snapshot: what pickle remembers of more costs three times as much."""


class KeyedTable(Generic[K, V]):
    """Values by key. With `ttl_us` a value that nobody has put for that long is gone."""

    def __init__(self, ttl_us: int | None = None) -> None:
        self._values: dict[K, V] = {}
        self._touched: dict[K, None] = {}
        self._ttl_us = ttl_us
        self._put_at_us: dict[K, int] = {}
        self.now_us = 0

    def get(self, key: K, default: V | None = None) -> V | None:
        """The value, or the default."""
        return self._values.get(key, default)

    def put(self, key: K, value: V) -> None:
        """Keep a value, also one that was changed in place."""
        self._values[key] = value
        self._touched[key] = None
        if self._ttl_us is not None:
            # At the end of the order, so that the oldest come first.
            self._put_at_us.pop(key, None)
            self._put_at_us[key] = self.now_us

    def delete(self, key: K) -> V | None:
        """Forget a value; what it was."""
        self._put_at_us.pop(key, None)
        if key not in self._values:
            return None
        self._touched[key] = None
        return self._values.pop(key)

    def expire(self) -> list[tuple[K, V]]:
        """Forget what is older than the TTL; what that was."""
        if self._ttl_us is None:
            return []
        limit_us = self.now_us - self._ttl_us
        # One pass: a dictionary looks for its first key behind all that were removed before it.
        old = [key for key, _ in takewhile(lambda put: put[1] <= limit_us, self._put_at_us.items())]
        gone = [(key, self._values[key]) for key in old]
        for key in old:
            self.delete(key)
        if len(old) > len(self._put_at_us):
            # Else the next pass begins with the places of the keys that are gone.
            self._put_at_us = dict(self._put_at_us)
        return gone

    def items(self) -> Iterable[tuple[K, V]]:
        """All keys with their values; not to be changed meanwhile."""
        return self._values.items()

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def take_changes(self) -> tuple[dict[K, Any], list[K]]:
        """What was put and what was deleted since the last call."""
        touched, self._touched = self._touched, {}
        timed = self._ttl_us is not None
        put = {
            key: (self._values[key], self._put_at_us[key]) if timed else self._values[key]
            for key in touched
            if key in self._values
        }
        return put, [key for key in touched if key not in self._values]

    def everything(self) -> dict[K, Any]:
        """All there is, in the form of `changed`."""
        if self._ttl_us is None:
            return self._values
        return {key: (self._values[key], at_us) for key, at_us in self._put_at_us.items()}

    def apply(self, put: dict[K, Any], deleted: Iterable[K]) -> None:
        """Take over what another process has changed."""
        for key in deleted:
            self._values.pop(key, None)
            self._put_at_us.pop(key, None)
        if self._ttl_us is None:
            self._values.update(put)
            return
        for key, (value, at_us) in put.items():
            self._values[key] = value
            self._put_at_us.pop(key, None)
            self._put_at_us[key] = at_us


class GroupedTable(Generic[K, V]):
    """Values by group and key, where all of a group are looked at together; a change of one writes that one alone."""

    def __init__(self, ttl_us: int | None = None) -> None:
        self.table: KeyedTable[tuple[Any, K], V] = KeyedTable(ttl_us)
        self._groups: dict[Any, dict[K, V]] | None = None

    def group(self, group: Hashable) -> dict[K, V]:
        """The values of a group by key, in the order in which they came; not to be changed."""
        return self._build_groups().get(group, {})

    def put(self, group: Hashable, key: K, value: V) -> None:
        """Keep a value, also one that was changed in place."""
        self._build_groups().setdefault(group, {})[key] = value
        self.table.put((group, key), value)

    def delete(self, group: Hashable, key: K) -> None:
        """Forget a value."""
        self.table.delete((group, key))
        self._forget(group, key)

    def drop(self, group: Hashable) -> None:
        """Forget all values of a group."""
        for key in self._build_groups().pop(group, {}):
            self.table.delete((group, key))

    def expire(self) -> list[tuple[Any, K, V]]:
        """Forget what is older than the TTL; what that was."""
        gone = []
        for (group, key), value in self.table.expire():
            self._forget(group, key)
            gone.append((group, key, value))
        return gone

    def note_restored(self, put: Iterable[tuple[Any, K]], deleted: Iterable[tuple[Any, K]]) -> None:
        """These keys of the table were changed from outside."""
        if self._groups is None:
            return
        for group, key in deleted:
            self._forget(group, key)
        for group, key in put:
            self._groups.setdefault(group, {})[key] = cast("V", self.table.get((group, key)))

    def _forget(self, group: Hashable, key: K) -> None:
        values = self._build_groups().get(group)
        if values is not None:
            values.pop(key, None)
            if not values:
                del self._build_groups()[group]

    def _build_groups(self) -> dict[Any, dict[K, V]]:
        if self._groups is None:
            self._groups = {}
            for (group, key), value in self.table.items():
                self._groups.setdefault(group, {})[key] = value
        return self._groups


class SetTable(Generic[K, V]):
    """A set of values by key, each of which only grows until it is dropped; a turn writes what it added."""

    def __init__(self) -> None:
        self._values: dict[K, set[V]] = {}
        self._added: dict[K, list[V]] = {}
        self._dropped: dict[K, None] = {}

    def add(self, key: K, values: Iterable[V]) -> list[V]:
        """Those of the values that the set of `key` did not have, each once, in their order."""
        known = self._values.get(key)
        come = [value for value in dict.fromkeys(values) if known is None or value not in known]
        if come:
            self._values.setdefault(key, set()).update(come)
            self._added.setdefault(key, []).extend(come)
        return come

    def drop(self, key: K) -> None:
        """Forget the set of a key."""
        if self._values.pop(key, None) is not None:
            self._added.pop(key, None)
            self._dropped[key] = None

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    def take_changes(self) -> tuple[dict[K, list[V]], list[K]]:
        """What was added since the last call, and the sets that were dropped before that."""
        added, self._added = self._added, {}
        dropped, self._dropped = self._dropped, {}
        return added, list(dropped)

    def everything(self) -> dict[K, list[V]]:
        """All there is, in the form of `changed`."""
        return {key: list(values) for key, values in self._values.items()}

    def apply(self, put: Mapping[K, Iterable[V]], deleted: Iterable[K]) -> None:
        """Take over what another process has changed."""
        for key in deleted:
            self._values.pop(key, None)
        for key, values in put.items():
            self._values.setdefault(key, set()).update(values)


class OpenEnds(msgspec.Struct, frozen=True, array_like=True):
    """How many ends are waited for, and the earliest in microseconds, which is None where there is none."""

    count: int = 0
    earliest_us: int | None = None

    def with_more(self, other: OpenEnds) -> OpenEnds:
        """Both together."""
        known = [end_us for end_us in (self.earliest_us, other.earliest_us) if end_us is not None]
        return OpenEnds(self.count + other.count, min(known, default=None))


class KeyTimers(Generic[K]):
    """At most one time for each key, in microseconds; the earliest first, and equal times in the order of setting.

    `waiting` is what waits for the times where it is more than one value each.
    """

    def __init__(self, waiting: Sized | None = None) -> None:
        self._waiting = waiting
        self.table: KeyedTable[K, int] = KeyedTable()
        self._heap: list[tuple[int, int, K]] | None = None
        self._number = 0

    def set(self, key: K, time_us: int) -> None:
        """Wake at `time_us`, in place of any time that was set before."""
        if self.table.get(key) == time_us:
            return
        self.table.put(key, time_us)
        self._number += 1
        heapq.heappush(self._build_heap(), (time_us, self._number, key))

    def clear(self, key: K) -> None:
        """Do not wake."""
        self.table.delete(key)

    def time_of(self, key: K) -> int | None:
        """When it wakes; None for never."""
        return self.table.get(key)

    def due(self, until_us: int) -> Iterator[tuple[int, K]]:
        """Times up to and with `until_us`, each forgotten as it is given; new ones may be set meanwhile."""
        heap = self._build_heap()
        while heap and heap[0][0] <= until_us:
            time_us, _, key = heapq.heappop(heap)
            if self.table.get(key) == time_us:
                self.table.delete(key)
                yield time_us, key

    def open_ends(self) -> OpenEnds:
        """How much waits, and the earliest time."""
        heap = self._build_heap()
        while heap and self.table.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return OpenEnds(len(self.table if self._waiting is None else self._waiting), heap[0][0] if heap else None)

    def note_restored(self, put: Iterable[K], deleted: Iterable[K]) -> None:
        """These keys of the table were changed from outside; a time that does not hold any more is passed over."""
        if self._heap is None:
            return
        for key in put:
            self._number += 1
            heapq.heappush(self._heap, (self.table.get(key, 0) or 0, self._number, key))

    def _build_heap(self) -> list[tuple[int, int, K]]:
        if self._heap is None:
            self._heap = [(time_us, number, key) for number, (key, time_us) in enumerate(self.table.items())]
            self._number = len(self._heap)
            heapq.heapify(self._heap)
        return self._heap


_MOVED: Final = {
    "millstream.streams.operators.over_state": "millstream.streams.operators.over.over_state",
    "millstream.streams.functions.user_aggregates": "millstream.streams.functions.user_functions.user_aggregates",
    "millstream.streams.functions.user_functions.row": "millstream.streams.functions.user_functions.user_values",
    "millstream.streams.operators.sort_keys": "millstream.streams.operators.keys",
}
"""Modules whose classes stand in states that are kept, by the names that they had: a state outlives a move."""


class _StateUnpickler(pickle.Unpickler):
    """Reads states with the classes of modules that have moved since."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return super().find_class(_MOVED.get(module_name, module_name), global_name)


class OperatorState:
    """Named tables and timers. A turn's `delta` brings another instance to where this one stands.

    `ttl_ms` is the job's TTL (0: none), `lives_ms` those of single tables by name.
    """

    def __init__(self, ttl_ms: int = 0, lives_ms: Mapping[str, int] | None = None) -> None:
        self._ttl_ms = ttl_ms
        self._lives_ms = lives_ms or {}
        self._tables: dict[str, KeyedTable[Any, Any] | SetTable[Any, Any]] = {}
        self._timers: dict[str, KeyTimers[Any]] = {}
        self._grouped: dict[str, GroupedTable[Any, Any]] = {}
        self._views: dict[str, KeyTimers[Any] | GroupedTable[Any, Any]] = {}

    def table(self, name: str, *, lives: bool = False) -> KeyedTable[Any, Any]:
        """The table of that name; its values end with the table's or the job's TTL where it `lives` by it."""
        found = self._tables.get(name)
        if not isinstance(found, KeyedTable):
            found = self._tables[name] = KeyedTable(self._ttl_us(name) if lives else None)
        return found

    def timers(self, name: str = "timers", waiting: Sized | None = None) -> KeyTimers[Any]:
        """The timers of that name; `waiting` is what they wake where that is more than one value each."""
        if name not in self._timers:
            timers: KeyTimers[Any] = KeyTimers(waiting)
            self._timers[name] = timers
            self._tables[f"{name}@"] = timers.table
            self._views[f"{name}@"] = timers
        return self._timers[name]

    def open_ends(self) -> OpenEnds | None:
        """What the timers `ends` wait for, as operators call those that wake at the end of a window; None without."""
        timers = self._timers.get("ends")
        return None if timers is None else timers.open_ends()

    def grouped_table(self, name: str, *, lives: bool = False) -> GroupedTable[Any, Any]:
        """The table of that name whose values are looked at by group."""
        if name not in self._grouped:
            grouped: GroupedTable[Any, Any] = GroupedTable(self._ttl_us(name) if lives else None)
            self._grouped[name] = grouped
            self._tables[f"{name}/"] = grouped.table
            self._views[f"{name}/"] = grouped
        return self._grouped[name]

    def sets(self, name: str) -> SetTable[Any, Any]:
        """The table of that name of sets that only grow."""
        found = self._tables.get(f"{name}+")
        if not isinstance(found, SetTable):
            found = self._tables[f"{name}+"] = SetTable()
        return found

    def set_clock(self, now_us: int) -> None:
        """Tell the processing time, by which values with a TTL end."""
        for table in self._tables.values():
            if isinstance(table, KeyedTable):
                table.now_us = now_us

    @property
    def keys(self) -> int:
        """Values in all tables."""
        return sum(len(table) for table in self._tables.values())

    def _ttl_us(self, name: str) -> int | None:
        return self._lives_ms.get(name, self._ttl_ms) * 1000 or None

    def delta(self) -> bytes:
        """What changed since the last call; blank if nothing did."""
        changed: _Changed = {}
        for name, table in self._tables.items():
            put, deleted = table.take_changes()
            if put or deleted:
                changed[name] = (put, deleted)
        return pickle.dumps(changed, pickle.HIGHEST_PROTOCOL) if changed else b""

    def snapshot(self) -> bytes:
        """Everything: one pickle, and behind it one for each `ENTRIES_PER_PICKLE` further entries of a table."""
        whole = io.BytesIO()
        pickler = pickle.Pickler(whole, pickle.HIGHEST_PROTOCOL)
        entries = {name: iter(table.everything().items()) for name, table in self._tables.items()}
        pickler.dump({name: (dict(islice(rest, ENTRIES_PER_PICKLE)), []) for name, rest in entries.items()})
        for name, rest in entries.items():
            while part := dict(islice(rest, ENTRIES_PER_PICKLE)):
                pickler.clear_memo()
                pickler.dump({name: (part, [])})
        return whole.getvalue()

    def apply(self, change: bytes) -> None:
        """Take over a delta, or a snapshot where nothing was there. The operator's tables are there already."""
        for changed in _read_pickles(change):
            for name, (put, deleted) in changed.items():
                (self._tables[name] if name in self._tables else self.table(name)).apply(put, deleted)
                if name in self._views:
                    self._views[name].note_restored(put, deleted)


def part_change(change: bytes, names: Collection[str]) -> tuple[bytes, bytes]:
    """A change of a state as two: of the tables of those names, and of all others."""
    named, others = io.BytesIO(), io.BytesIO()
    for changed in _read_pickles(change):
        parts = ({}, {})  # type: tuple[_Changed, _Changed]
        for name, table in changed.items():
            parts[name not in names][name] = table
        for part, target in zip(parts, (named, others), strict=True):
            if part:
                pickle.dump(part, target, pickle.HIGHEST_PROTOCOL)
    return named.getvalue(), others.getvalue()


def _read_pickles(change: bytes) -> Iterator[_Changed]:
    """The parts of a delta or a snapshot."""
    content = io.BytesIO(change)
    while content.tell() < len(change):
        yield _StateUnpickler(content).load()
