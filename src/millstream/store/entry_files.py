"""Files of fixed-size entries, a fixed number in each, named by their first byte offset in 20 digits.

The newest entries stay in memory (`tail`) until a checkpoint writes them in one go.
"""

from __future__ import annotations

from pathlib import Path

from millstream.model.errors import StoreError
from millstream.store.files import FileLayer, OpenFiles

__all__ = ["EntryFiles"]

_NAME_DIGITS = 20


class EntryFiles:
    """Entries by number, from 0. Those from `tail_number` on are in `tail`, those before it in the files.

    Not safe for use by several threads at once but for `write`, which touches nothing but the files.
    """

    __slots__ = ("_directory", "_entry_bytes", "_file_bytes", "_files", "_opened", "tail", "tail_number")

    def __init__(
        self, directory: str, entry_bytes: int, entries_per_file: int, files: FileLayer, opened: OpenFiles
    ) -> None:
        self.tail = bytearray()
        self.tail_number = 0
        self._directory = directory
        self._entry_bytes = entry_bytes
        self._file_bytes = entries_per_file * entry_bytes
        self._files = files
        self._opened = opened

    @property
    def directory(self) -> Path:
        """Where the files are. Made when it is asked for: a store may have very many queues."""
        return Path(self._directory)

    @property
    def next_number(self) -> int:
        """The number of the next entry."""
        return self.tail_number + len(self.tail) // self._entry_bytes

    def start_at(self, number: int) -> None:
        """Take the entries before `number` as being in the files, and none in memory."""
        self.tail_number = number
        self.tail.clear()

    def read_packed(self, first: int, end: int) -> bytes:
        """The entries from `first` up to but without `end`. Raises RECORD_DAMAGED where a file is not whole."""
        packed = b""
        if first < self.tail_number:
            packed = self._read(first, min(end, self.tail_number))
        if end > self.tail_number:
            start = max(first - self.tail_number, 0) * self._entry_bytes
            packed += self.tail[start : (end - self.tail_number) * self._entry_bytes]
        return packed

    def _read(self, first: int, end: int) -> bytes:
        parts = []
        for path, position, length in self._pieces(first * self._entry_bytes, (end - first) * self._entry_bytes):
            try:
                part = self._files.pread(self._opened.descriptor(path), length, position)
            except FileNotFoundError:
                part = b""
            if len(part) < length:
                raise StoreError("RECORD_DAMAGED", f"The consume queue file {path} is missing or too short.")
            parts.append(part)
        return b"".join(parts)

    def _pieces(self, start: int, length: int) -> list[tuple[str, int, int]]:
        pieces = []
        while length:
            file_start = start - start % self._file_bytes
            piece = min(length, file_start + self._file_bytes - start)
            pieces.append((f"{self._directory}/{file_start:0{_NAME_DIGITS}}", start - file_start, piece))
            start, length = start + piece, length - piece
        return pieces

    def write(self, first: int, packed: bytes, *, sync: bool = True) -> None:
        """Put entries from the number `first` on into the files.

        With `sync` they are on the disk when this returns; without it the caller syncs the file system.
        """
        self._files.make_directory(self.directory, sync=sync)
        done = 0
        for name, position, length in self._pieces(first * self._entry_bytes, len(packed)):
            path = Path(name)
            is_new = sync and not self._files.exists(path)
            with self._files.open_descriptor(path, create=True) as descriptor:
                self._files.pwrite(descriptor, packed[done : done + length], position)
                if sync:
                    self._files.fdatasync(descriptor)
            if is_new:
                self._files.sync_directory(path.parent)
            done += length

    def forget_written(self, packed_bytes: int) -> None:
        """Leave the first bytes of the tail to the files from here on."""
        del self.tail[:packed_bytes]
        self.tail_number += packed_bytes // self._entry_bytes

    def remove_before(self, number: int) -> None:
        """Remove the files that hold nothing but entries before `number`. What a crash leaves of them harms nobody."""
        limit = number * self._entry_bytes
        for path in self._files.entries(self.directory):
            if path.name.isdigit() and int(path.name) + self._file_bytes <= limit:
                self._opened.forget_file(path)
                self._files.discard(path)
