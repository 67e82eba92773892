"""Small documents that are replaced atomically: topics, groups, offsets, positions.

Format: the line `millstream-snapshot 1 LENGTH CRC32\\n`, then the document.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from millstream.model.errors import StoreError
from millstream.store.files import FileLayer

__all__ = ["Snapshot"]

_MARK = b"millstream-snapshot 1"


class Snapshot:
    """One document in two checksummed files, `path` and `path` + `.bak`, so that damage to one of them costs nothing.

    Errors of the disk are raised as `OSError`. `on_saved` is called after each save, before it returns.
    """

    def __init__(
        self, path: Path, files: FileLayer | None = None, *, on_saved: Callable[[], None] | None = None
    ) -> None:
        self._path = path
        self._backup = path.with_name(path.name + ".bak")
        self._files = files or FileLayer()
        self._on_saved = on_saved

    def save(self, document: bytes) -> None:
        """Replace the document; it is on the disk when this returns, and a crash on the way leaves the old one."""
        head = b"%s %d %08x\n" % (_MARK, len(document), crc32(document))
        self._files.make_directory(self._path.parent)
        # The copy first: a save that fails on the way leaves the old document where it is looked for first.
        self._files.replace(self._backup, head + document)
        self._files.replace(self._path, head + document)
        if self._on_saved is not None:
            self._on_saved()

    def load(self) -> bytes | None:
        """The document last saved, or None if there was none. A damaged file gives way to its copy.

        Raises STORE_FORMAT where files are there but none of them can be read.
        """
        there = [path for path in (self._path, self._backup) if self._files.exists(path)]
        for path in there:
            document = _document(self._files.read_all(path))
            if document is not None:
                return document
        if not there:
            return None
        raise StoreError("STORE_FORMAT", f"{self._path} is damaged or of an unknown format, and so is its copy.")


def _document(content: bytes) -> bytes | None:
    head, _, document = content.partition(b"\n")
    return document if head == b"%s %d %08x" % (_MARK, len(document), crc32(document)) else None
