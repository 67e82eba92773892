"""Writing the next generation, in order: first data and index, then the header that says they are whole."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from millstream.store.compaction.header import GenerationHeader, encode_header
from millstream.store.files import FileLayer

__all__ = ["BUFFER_BYTES", "AppendedFile", "GenerationWriter"]

BUFFER_BYTES = 1024 * 1024
"""Bytes that a file gathers before it writes them, over those of one record."""


class AppendedFile:
    """A file that is written once from its start on, through a buffer. `crc` is of all that was appended."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self.size_bytes = 0
        self.crc = 0
        self._files = files
        self._buffer = bytearray()
        self._written_bytes = 0
        self._descriptor: int | None = files.open(path, create=True)
        try:
            files.truncate(self._descriptor, 0)
        except OSError:
            self.close()
            raise

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Put `data` at the end."""
        self._buffer += data
        self.size_bytes += len(data)
        if len(self._buffer) >= BUFFER_BYTES:
            self.write()

    def write(self) -> None:
        """Hand what was appended to the system, so that other descriptors see it."""
        assert self._descriptor is not None
        if self._buffer:
            self._files.pwrite(self._descriptor, self._buffer, self._written_bytes)
            self.crc = crc32(self._buffer, self.crc)
            self._written_bytes = self.size_bytes
            self._buffer.clear()

    def sync(self) -> None:
        """Return when all that was appended is on the disk."""
        self.write()
        assert self._descriptor is not None
        self._files.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file. Closing twice is no error."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._files.close(descriptor)


class GenerationWriter:
    """The directory of one generation to be. Errors of the disk are `OSError`."""

    def __init__(self, directory: Path, files: FileLayer) -> None:
        self.directory = directory
        self._files = files
        files.make_directory(directory)
        self.data = AppendedFile(directory / "data", files)
        try:
            self.index = AppendedFile(directory / "index", files)
        except OSError:
            self.data.close()
            raise

    def sync(self) -> None:
        """Return when data and index are on the disk."""
        self.data.sync()
        self.index.sync()
        self.close()

    def finish(self, header: GenerationHeader) -> None:
        """Seal what was synced; a start that finds this header may use the generation."""
        self._files.replace(self.directory / "header", encode_header(header))

    def close(self) -> None:
        """Close the files."""
        self.data.close()
        self.index.close()
