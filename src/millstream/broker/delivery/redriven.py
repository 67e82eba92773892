"""Which dead letters were sent again, by group: in memory, and in the state log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

from millstream.broker.queues.topics import DEAD_LETTER_PREFIX
from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.store.snapshot import Snapshot

__all__ = ["DEAD_LETTER_QUEUE", "OffsetSet", "RedrivenTable"]

DEAD_LETTER_QUEUE = 0
"""The one queue of a dead-letter topic."""

_VERSION = 1


class _Document(Document):
    """Stretches of queue offsets: begin, and end (not included)."""

    groups: dict[str, list[tuple[int, int]]]


class RedrivenTable:
    """The offsets by group. `limit` before use."""

    def __init__(self, snapshot: Snapshot) -> None:
        saved = SavedDocument(snapshot, _Document, noun="redriven dead letters", version=_VERSION)
        self.table = StateTable("redriven", saved, list[tuple[int, int]], self)
        """Its saved form: the stretches of each group."""
        self._groups: dict[str, OffsetSet] = {}

    def make_document(self) -> _Document:
        """All groups' stretches."""
        groups = {group: held.stretches for group, held in self._groups.items() if held.stretches}
        return _Document(version=_VERSION, groups=groups)

    def load_document(self, document: _Document) -> None:
        """Take up the saved stretches."""
        for group, stretches in document.groups.items():
            self.apply_change(group, stretches)

    def apply_change(self, key: str, value: list[tuple[int, int]] | None) -> None:
        """Have these stretches for the group."""
        if value is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = OffsetSet(value)

    def limit(self, max_offset: Callable[[str, int], int | None]) -> None:
        """Forget what lies behind the queues. `max_offset(topic, queue_id)` says where one ends, None if it is gone.

        It may end earlier than when it was saved: other dead letters will have those offsets.
        """
        for group, held in self._groups.items():
            held.drop_from(max_offset(DEAD_LETTER_PREFIX + group, DEAD_LETTER_QUEUE) or 0)

    def find(self, group: str) -> OffsetSet:
        """The group's offsets, to be looked at."""
        return self._groups.get(group, OffsetSet())

    def of(self, group: str) -> OffsetSet:
        """The group's offsets, to be added to."""
        return self._groups.setdefault(group, OffsetSet())

    def forget(self, group: str) -> None:
        """The group's dead letters are deleted: those to come are others. On the disk when this returns."""
        held = self._groups.pop(group, None)
        if held is not None and held.stretches:
            self.table.write(group, None)

    def save(self, group: str) -> None:
        """Put the group's offsets on the disk. Raises STORE_FAILED, DISK_FULL."""
        self.table.write(group, self.find(group).stretches)


class OffsetSet:
    """Offsets of one queue. `stretches` are begin and end (not included), sorted, apart from each other."""

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        held = [(begin, end) for begin, end in stretches if begin < end]
        self._begins = [begin for begin, _ in held]
        self._ends = [end for _, end in held]

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._begins, offset) - 1
        return index >= 0 and offset < self._ends[index]

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The stretches that it was made of, or became."""
        return list(zip(self._begins, self._ends, strict=True))

    def add(self, offset: int) -> None:
        """Hold one offset more; nothing if it is held."""
        if offset in self:
            return
        index = bisect_right(self._begins, offset)
        joins_left = index > 0 and self._ends[index - 1] == offset
        joins_right = index < len(self._begins) and self._begins[index] == offset + 1
        if joins_left and joins_right:
            self._ends[index - 1] = self._ends.pop(index)
            del self._begins[index]
        elif joins_left:
            self._ends[index - 1] = offset + 1
        elif joins_right:
            self._begins[index] = offset
        else:
            self._begins.insert(index, offset)
            self._ends.insert(index, offset + 1)

    def drop_below(self, offset: int) -> None:
        """Forget what lies below `offset`, where the queue begins by now."""
        keep = bisect_right(self._ends, offset)
        del self._begins[:keep], self._ends[:keep]
        if self._begins and self._begins[0] < offset:
            self._begins[0] = offset

    def drop_from(self, offset: int) -> None:
        """Forget what lies at `offset` or behind it, where the queue ends by now."""
        keep = bisect_right(self._begins, offset - 1)
        del self._begins[keep:], self._ends[keep:]
        if self._ends and self._ends[-1] > offset:
            self._ends[-1] = offset
