"""Which dead letters were sent again, by group: in memory, saved whole."""

from __future__ import annotations

from collections.abc import Callable

from millstream.broker.document import Document, SavedDocument
from millstream.broker.offset_set import OffsetSet
from millstream.broker.topics import DEAD_LETTER_PREFIX
from millstream.store.snapshot import Snapshot

__all__ = ["DEAD_LETTER_QUEUE", "RedrivenTable"]

DEAD_LETTER_QUEUE = 0
"""The one queue of a dead-letter topic."""

_VERSION = 1


class _Document(Document):
    """Stretches of queue offsets: begin, and end (not included)."""

    groups: dict[str, list[tuple[int, int]]]


class RedrivenTable:
    """The offsets by group. `load` before use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._saved = SavedDocument(snapshot, _Document, noun="redriven dead letters", version=_VERSION)
        self._groups: dict[str, OffsetSet] = {}

    def load(self, max_offset: Callable[[str, int], int | None]) -> None:
        """Read what was saved. `max_offset(topic, queue_id)` says where a queue ends, None if it is gone.

        It may end earlier than when it was saved: other dead letters will have those offsets. Raises STORE_FORMAT.
        """
        document = self._saved.load()
        for group, stretches in document.groups.items() if document else ():
            held = self._groups[group] = OffsetSet(stretches)
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
            self.save()

    def save(self) -> None:
        """Put everything on the disk. Raises STORE_FAILED, DISK_FULL."""
        groups = {group: held.stretches for group, held in self._groups.items() if held.stretches}
        self._saved.save(_Document(version=_VERSION, groups=groups))
