"""Which records of the log belong to topics that were deleted: those below the log's end at that time.

Without this a topic made again would get its old messages back when its consume queue is made again from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import StoreError
from millstream.store.files import FileLayer
from millstream.store.snapshot import Snapshot

__all__ = ["DELETED_TOPICS", "DeletedTopics"]

DELETED_TOPICS: Final = "deleted-topics"
"""The file in the directory of a store."""


class DeletedTopics:
    """For each deleted topic the log offset below which its records do not count, kept in a snapshot."""

    def __init__(self, path: Path, files: FileLayer, *, on_saved: Callable[[], None] | None = None) -> None:
        self._snapshot = Snapshot(path, files, on_saved=on_saved)
        document = self._snapshot.load()
        try:
            self._offsets = msgspec.json.decode(document, type=dict[str, int]) if document is not None else {}
        except msgspec.DecodeError as error:
            raise StoreError("STORE_FORMAT", f"{path} cannot be read: {error}.") from None

    def log_offset(self, topic: str) -> int:
        """The log offset from which on the topic's records count; 0 if it was never deleted."""
        return self._offsets.get(topic, 0)

    def add(self, topics: Iterable[str], log_offset: int) -> None:
        """Let the topics' records below `log_offset` not count any more; it is on the disk when this returns."""
        self._save(self._offsets | dict.fromkeys(topics, log_offset))

    def limit(self, log_end: int) -> None:
        """Lower what lies behind the log's end, where new records will stand. A power failure can have set it back."""
        if any(log_offset > log_end for log_offset in self._offsets.values()):
            self._save({topic: min(log_offset, log_end) for topic, log_offset in self._offsets.items()})

    def prune(self, log_start: int) -> None:
        """Forget the topics of which the log has no record from before their deletion any more."""
        kept = {topic: log_offset for topic, log_offset in self._offsets.items() if log_offset > log_start}
        if len(kept) < len(self._offsets):
            self._save(kept)

    def _save(self, offsets: dict[str, int]) -> None:
        self._snapshot.save(msgspec.json.encode(offsets))
        self._offsets = offsets
