"""The known, unrepaired damage of a replica's log, kept over restarts.

damage          in the store's directory: the places, from where the log is to be looked at next, and whether what
                is derived from the log lacks what was damaged; a checksummed document
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import StoreError
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer
from millstream.store.snapshot import Snapshot

__all__ = ["DAMAGE", "MAX_PLACES", "KnownDamage", "discard_derived"]

DAMAGE: Final = "damage"
"""The document in the directory of a store."""

MAX_PLACES: Final = 1000
"""Places that are kept; while there are so many the log is looked at no further."""

_VERSION: Final = 1
_DERIVED: Final = ("checkpoint", "checkpoint.bak", "consumequeue", "index", "timers")

_log = logging.getLogger(__name__)


class _Document(msgspec.Struct):
    version: int
    position: int
    places: list[tuple[int, int]]
    needs_rebuild: bool


class KnownDamage:
    """Of the store in `directory`. Calls come from one thread. What cannot be saved is known until the next start."""

    def __init__(self, directory: Path, files: FileLayer | None = None) -> None:
        self._path = directory / DAMAGE
        self._snapshot = Snapshot(self._path, files or FileLayer())
        noted = self._load()
        self.places: list[tuple[int, int]] = noted.places
        """From which log offset, at which a record begins, to which; in order, and apart from each other."""
        self.position = noted.position
        """From where on the log is to be looked at next: where a file of the log begins."""
        self.needs_rebuild = noted.needs_rebuild
        """Whether files that are derived from the log are to be made again when it is mended."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all places."""
        return sum(end - start for start, end in self.places)

    @property
    def is_full(self) -> bool:
        """Whether no more places are kept."""
        return len(self.places) >= MAX_PLACES

    def holds(self, log_offset: int) -> bool:
        """Whether the offset lies in a place."""
        return any(start <= log_offset < end for start, end in self.places)

    def note(self, start: int, end: int) -> bool:
        """Note a place; whether it is a new one."""
        if self.holds(start) and self.holds(end - 1):
            return False
        merged = [one for one in self.places if one[1] < start or one[0] > end]
        touched = [one for one in self.places if one not in merged]
        first, last = min([start, *(one[0] for one in touched)]), max([end, *(one[1] for one in touched)])
        self.places = sorted([*merged, (first, last)])[:MAX_PLACES]
        return True

    def drop(self, start: int, end: int) -> None:
        """Note that the bytes from `start` to `end` are right."""
        left = []
        for first, last in self.places:
            left += [(first, min(last, start)), (max(first, end), last)]
        self.places = [(first, last) for first, last in left if first < last]

    def keep_within(self, log_start: int, log_end: int) -> None:
        """Forget what the log does not have any more."""
        self.drop(0, log_start)
        if self.places:
            self.drop(log_end, max(log_end, self.places[-1][1]))

    def save(self) -> None:
        """Bring it to the disk, as far as that takes it."""
        document = _Document(_VERSION, self.position, self.places, self.needs_rebuild)
        try:
            self._snapshot.save(msgspec.json.encode(document))
        except OSError as error:
            _log.warning("What is damaged of the log cannot be noted in %s: %s", self._path, error)

    def _load(self) -> _Document:
        """A document that cannot be read is no loss: the log is looked at again."""
        nothing = _Document(_VERSION, 0, [], needs_rebuild=False)
        try:
            text = self._snapshot.load()
            noted = nothing if text is None else msgspec.json.decode(text, type=_Document)
        except (StoreError, msgspec.DecodeError) as error:
            _log.warning("%s cannot be read, so the log is looked at anew: %s", self._path, error)
            return nothing
        return noted if noted.version == _VERSION else nothing


def discard_derived(directory: Path, further: tuple[str, ...] = (), files: FileLayer | None = None) -> None:
    """Remove what is derived from the log of a store that nobody has open: its next start reads the whole log.

    `further` are files beside the store, by paths from its directory. Raises DATA_DIRECTORY_IN_USE, OSError.
    """
    files = files or FileLayer()
    lock = DirectoryLock(directory, files)
    try:
        for name in (*_DERIVED, *further):
            path = directory / name
            if path.is_dir():
                files.remove_tree(path)
            elif files.exists(path):
                files.remove(path)
    finally:
        lock.release()
