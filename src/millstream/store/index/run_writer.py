"""Writes one run in bounded memory."""

from __future__ import annotations

from pathlib import Path

from millstream.store.files import FileLayer
from millstream.store.index.run import (
    BLOCK_ENTRIES,
    ENTRY_BYTES,
    HEADER_BYTES,
    PARTIAL_SUFFIX,
    KeyRun,
    RunSpan,
    pack_header,
    run_path,
    seal_block,
)

__all__ = ["RunWriter"]

_BLOCK_ENTRIES_BYTES = BLOCK_ENTRIES * ENTRY_BYTES


class RunWriter:
    """A run that is being written to a partial file over the range from `begin` to `end`.

    `finish` or `abandon` ends it. Errors of the disk are OSError; after one nothing but `abandon` is called.
    """

    def __init__(self, directory: Path, begin: int, end: int, files: FileLayer) -> None:
        self._path = run_path(directory, begin, end)
        self._partial = self._path.with_name(self._path.name + PARTIAL_SUFFIX)
        self._files = files
        self._descriptor = files.open(self._partial, create=True)
        self._pending = bytearray()
        self._entries = 0
        self._blocks = 0
        self._position = HEADER_BYTES
        try:
            files.truncate(self._descriptor, 0)
        except OSError:
            self._close()
            raise

    def add(self, packed: bytes) -> None:
        """Append entries, which come in the order of their bytes."""
        self._pending += packed
        self._entries += len(packed) // ENTRY_BYTES
        self._write(len(self._pending) // _BLOCK_ENTRIES_BYTES * _BLOCK_ENTRIES_BYTES)

    def _write(self, size: int) -> None:
        if not size:
            return
        blocks = []
        with memoryview(self._pending) as pending:
            for start in range(0, size, _BLOCK_ENTRIES_BYTES):
                block = bytes(pending[start : min(start + _BLOCK_ENTRIES_BYTES, size)])
                blocks.append(seal_block(self._blocks, block))
                self._blocks += 1
        del self._pending[:size]
        data = b"".join(blocks)
        self._files.pwrite(self._descriptor, data, self._position)
        self._position += len(data)

    def finish(self, span: RunSpan) -> KeyRun:
        """The run, which is on the disk when this returns."""
        self._write(len(self._pending))
        self._files.pwrite(self._descriptor, pack_header(span, self._entries), 0)
        self._files.fsync(self._descriptor)
        self._close()
        self._files.rename(self._partial, self._path)
        self._files.sync_directory(self._path.parent)
        return KeyRun(self._path, span, self._entries)

    def abandon(self) -> None:
        """Remove what was written."""
        self._close()
        self._files.discard(self._partial)

    def _close(self) -> None:
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1
