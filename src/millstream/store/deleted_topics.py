"""The records of deleted topics: those below the log's end at the time of the deletion.

Without this a topic made again would get its old messages back when its consume queue is made again from the log.

Format: snapshot 1, JSON: for each topic the log offset, or a list of them where the log still has several deletions.
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
    """For each topic the log offsets at which it was deleted: below the last one its records do not count.

    Earlier ones are kept for as long as the log reaches back to them: a cut of the log can take the last one back.
    """

    def __init__(self, path: Path, files: FileLayer, *, on_saved: Callable[[], None] | None = None) -> None:
        self._snapshot = Snapshot(path, files, on_saved=on_saved)
        document = self._snapshot.load()
        try:
            found = msgspec.json.decode(document, type=dict[str, int | list[int]]) if document is not None else {}
        except msgspec.DecodeError as error:
            raise StoreError("STORE_FORMAT", f"{path} cannot be read: {error}.") from None
        self._offsets = {topic: [said] if isinstance(said, int) else said for topic, said in found.items()}

    def log_offset(self, topic: str) -> int:
        """The log offset from which on the topic's records count; 0 if it was never deleted."""
        offsets = self._offsets.get(topic)
        return offsets[-1] if offsets else 0

    def last_offsets(self) -> dict[str, int]:
        """The log offset of each topic's last deletion."""
        return {topic: offsets[-1] for topic, offsets in self._offsets.items() if offsets}

    @property
    def last_log_offset(self) -> int:
        """Where in the log the last deletion stands; 0 where no topic was deleted."""
        return max((offsets[-1] for offsets in self._offsets.values() if offsets), default=0)

    def add(self, topics: Iterable[str], log_offset: int) -> None:
        """Let the topics' records below `log_offset` not count any more; it is on the disk when this returns."""
        self._save(self._offsets | {topic: [*self._offsets.get(topic, ()), log_offset] for topic in topics})

    def limit(self, log_end: int) -> None:
        """Lower what lies behind the log's end, where new records will stand. A power failure can have set it back."""
        self._save({topic: [min(each, log_end) for each in offsets] for topic, offsets in self._offsets.items()})

    def take_back(self, log_end: int) -> None:
        """Forget the deletions behind the log offset at which the log is cut: the log holds nothing of them."""
        self._save({topic: [each for each in offsets if each <= log_end] for topic, offsets in self._offsets.items()})

    def prune(self, log_start: int) -> None:
        """Forget the deletions of which the log has no record from before any more."""
        self._save({topic: [each for each in offsets if each > log_start] for topic, offsets in self._offsets.items()})

    def _save(self, deletions: dict[str, list[int]]) -> None:
        deletions = {topic: sorted(set(offsets)) for topic, offsets in deletions.items() if offsets}
        if deletions != self._offsets:
            packed = {topic: each[0] if len(each) == 1 else each for topic, each in deletions.items()}
            self._snapshot.save(msgspec.json.encode(packed))
            self._offsets = deletions
