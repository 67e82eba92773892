"""The manifest of a directory: files that must exist, so that a start detects missing ones.

A part is noted after it is on the disk and before anybody hears that what it holds is safe. So a crash between the two
leaves a part that nobody was promised, which the next start notes, and never a note without its part. Before a part is
removed on purpose its note goes.

Format: snapshot 1, JSON, format 1, in two files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import StoreError
from millstream.store.files import FileLayer
from millstream.store.snapshot import Snapshot

__all__ = ["FILE_NAME", "ManifestDocument", "StoreManifest"]

FILE_NAME: Final = "manifest"

_FORMAT_VERSION: Final = 1

_CHANGING = threading.Lock()
"""Held while any manifest is read and written again: several of a process may stand for one file."""

_log = logging.getLogger(__name__)


class ManifestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says. `parts` are paths below its directory.

    `log_start` is the first log offset that retention has left, None where it is not known. `lost` are ranges of log
    offsets that may be missing: somebody has accepted that.
    """

    parts: frozenset[str] = frozenset()
    log_start: int | None = None
    lost: tuple[tuple[int, int], ...] = ()
    format_version: int = _FORMAT_VERSION


class StoreManifest:
    """The manifest of one directory. Changes are on the disk when a call returns; fit for any thread.

    Only who holds the directory's lock changes it. Errors of the disk are `OSError`.
    """

    def __init__(self, directory: Path, files: FileLayer | None = None) -> None:
        self.directory = directory
        self._path = directory / FILE_NAME
        self._snapshot = Snapshot(self._path, files)
        self._known: frozenset[str] = frozenset()

    def load(self) -> ManifestDocument | None:
        """What is noted; None for a directory without a manifest, or where neither copy of it can be read.

        Raises STORE_FORMAT for one of a later release.
        """
        try:
            document = self._snapshot.load()
            noted = None if document is None else msgspec.json.decode(document, type=ManifestDocument)
        except (StoreError, msgspec.DecodeError) as error:
            _log.warning("What %s holds is taken for all that it should hold: %s", self.directory, error)
            return None
        if noted is not None and noted.format_version != _FORMAT_VERSION:
            words = f"{self._path} has the format {noted.format_version}, not {_FORMAT_VERSION}."
            raise StoreError("STORE_FORMAT", words)
        return noted

    def begin(self) -> None:
        """Note nothing, whatever was noted, for a directory whose manifest others did not keep."""
        self._change(lambda noted: ManifestDocument())

    def note(self, *parts: str) -> None:
        """Note parts that are on the disk."""
        if not self._known.issuperset(parts):
            self._change(lambda noted: msgspec.structs.replace(noted, parts=noted.parts.union(parts)))

    def noting(self, part: str) -> Callable[[], None]:
        """A call that notes the part, for whoever makes it."""
        return lambda: self.note(part)

    def forget(self, parts: Iterable[str]) -> None:
        """Take the notes of parts back, before the parts go."""
        gone = frozenset(parts)
        self._change(lambda noted: msgspec.structs.replace(noted, parts=noted.parts - gone))

    def note_log(self, part: str, log_start: int) -> None:
        """Note that the log, which is the part of that name, is there and begins at that offset."""
        self._change(
            lambda noted: msgspec.structs.replace(noted, parts=noted.parts.union((part,)), log_start=log_start)
        )

    def note_log_start(self, log_offset: int) -> None:
        """Note that the log need not have what lies below the offset, before it goes."""
        self._change(lambda noted: msgspec.structs.replace(noted, log_start=log_offset))

    def note_lost(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note the ranges of the log that need not be there, in place of those noted before."""
        lost = tuple(sorted(set(ranges)))
        self._change(lambda noted: msgspec.structs.replace(noted, lost=lost))

    def _change(self, changed: Callable[[ManifestDocument], ManifestDocument]) -> None:
        with _CHANGING:
            before = self.load()
            after = changed(before or ManifestDocument())
            if after != (before or ManifestDocument()):
                self._snapshot.save(msgspec.json.encode(after, order="sorted"))
            self._known = after.parts
