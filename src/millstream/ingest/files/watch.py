"""Watches files by pattern: finds new ones, follows renamed ones, and closes deleted ones."""

from __future__ import annotations

import glob
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

from millstream.ingest.files.positions import HEAD_BYTES, FilePosition, PositionsDocument, is_copy
from millstream.ingest.files.sources import BrokenFile, FileKey, TailSource, open_source
from millstream.ingest.files.tail import FileTail, Piece, TailOptions

__all__ = ["LINGER_S", "MAX_FILES", "MAX_GONE", "SCAN_S", "FileWatch", "WatchOptions"]

SCAN_S: Final = 1.0
"""Seconds between two looks for new files."""

LINGER_S: Final = 5.0
"""Seconds that a file without a name is still read at its end: its writer may not have noticed yet."""

MAX_FILES: Final = 2000
"""Files that are open at the same time at most; others wait until some are gone."""

MAX_GONE: Final = 1000
"""Removed files whose offsets are remembered: compressed copies of them may turn up."""

TURN_BYTES: Final = 8 * 1024 * 1024
"""Bytes of events of one step at most; one piece may go beyond."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What is followed. `from_end` passes over what files without a position hold at the first look."""

    patterns: Sequence[str]
    tail: TailOptions = field(default_factory=TailOptions)
    from_end: bool = False
    scan_s: float = SCAN_S
    linger_s: float = LINGER_S


class FileWatch:
    """Reads what is new in all files, in turn. `clock` gives seconds that only grow; `say` takes a line for people."""

    def __init__(
        self, options: WatchOptions, known: PositionsDocument, clock: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self._options = options
        self._clock = clock
        self._say = say
        self._known = {position.key: position for position in known.files}
        self._gone: deque[FilePosition] = deque(known.gone, MAX_GONE)
        self._tails: dict[FileKey, FileTail] = {}
        self._ending: list[FileTail] = []
        self._first = 0
        self._complaints: set[str] = set()
        self._next_scan_s: float | None = None
        self.unreadable = 0
        """Files that could not be read, or not to their end."""
        self.is_at_end = False
        """Whether the last turn found nothing more in any file."""

    @property
    def files(self) -> int:
        """Files that are followed."""
        return len(self._tails)

    def unread_bytes(self) -> int:
        """Bytes of all files that are not acknowledged."""
        return sum(tail.unread_bytes() for tail in self._tails.values())

    def turn(self) -> list[Piece]:
        """What is new, of each file a part; files that were passed over come first in the next turn."""
        now_s = self._clock()
        if self._next_scan_s is None or now_s >= self._next_scan_s:
            self._scan(now_s, is_first=self._next_scan_s is None)
            self._next_scan_s = now_s + self._options.scan_s
        pieces: list[Piece] = []
        size = 0
        keys = list(self._tails)
        self._first %= len(keys) or 1
        for count, key in enumerate(keys[self._first :] + keys[: self._first], 1):
            for piece in self._read(key, now_s):
                pieces.append(piece)
                size += sum(map(len, piece.events.bodies))
            if size >= TURN_BYTES:
                self._first += count
                break
        self.is_at_end = not pieces and all(tail.is_at_end for tail in self._tails.values())
        return pieces

    def end(self) -> list[Piece]:
        """The lines without an end of all files: nobody waits for the rest of them."""
        return [tail.end() for tail in self._tails.values()]

    def positions(self) -> PositionsDocument:
        """Where all files stand by what is acknowledged."""
        for tail in [tail for tail in self._ending if tail.is_settled]:
            self._ending.remove(tail)
            self._gone.append(tail.position())
            tail.source.close()
        files = [tail.position() for tail in (*self._tails.values(), *self._ending)]
        return PositionsDocument(files=[*files, *self._known.values()], gone=list(self._gone))

    def close(self) -> None:
        """Close all files."""
        for tail in (*self._tails.values(), *self._ending):
            tail.source.close()
        self._tails, self._ending = {}, []

    def find(self) -> dict[FileKey, Path]:
        """The files that match the patterns now."""
        found: dict[FileKey, Path] = {}
        for pattern in self._options.patterns:
            for name in sorted(glob.glob(pattern, recursive=True)):
                try:
                    status = os.stat(name)
                except OSError:
                    continue  # It went between the two calls.
                if stat.S_ISREG(status.st_mode):
                    found.setdefault(FileKey.of(status), Path(name))
        return found

    # inside

    def _read(self, key: FileKey, now_s: float) -> Iterator[Piece]:
        tail = self._tails[key]
        try:
            piece = tail.read(now_s)
        except BrokenFile as error:
            if error.may_grow:
                tail.is_at_end = True
            self._complain(str(tail.path), str(error))
            if not error.may_grow:
                yield self._let_go(key)
            return
        except OSError as error:
            self._complain(str(tail.path), f"{tail.path} cannot be read: {error.strerror or error}")
            tail.is_at_end = True
            return
        if piece is not None:
            yield piece
        elif tail.is_at_end and tail.left_s is not None and now_s - tail.left_s >= self._options.linger_s:
            yield self._let_go(key)

    def _let_go(self, key: FileKey) -> Piece:
        tail = self._tails.pop(key)
        self._ending.append(tail)
        return tail.end()

    def _scan(self, now_s: float, *, is_first: bool) -> None:
        found = self.find()
        for key, tail in self._tails.items():
            path = found.get(key)
            if path is not None:
                tail.path, tail.left_s = path, None
            elif tail.left_s is None:
                tail.left_s = now_s
        if is_first:
            self._take_up(found, now_s)
        for key, path in found.items():
            if key not in self._tails and len(self._tails) < MAX_FILES:
                self._open(path, from_end=is_first and self._options.from_end)
            elif key not in self._tails:
                self._complain("", f"{MAX_FILES:,} files are followed; the others wait until some are gone")

    def _open(self, path: Path, *, from_end: bool) -> FileTail | None:
        try:
            source = open_source(path)
        except OSError as error:
            self._complain(str(path), f"{path} cannot be read: {error.strerror or error}")
            return None
        try:
            if source.key in self._tails:
                source.close()
                return None
            offset = self._beginning(path, source, from_end=from_end)
            tail = FileTail(path, source, self._options.tail, offset)
        except (BrokenFile, OSError) as error:
            source.close()
            # A packed file that is still being written will have an end.
            if not (isinstance(error, BrokenFile) and error.may_grow):
                self._complain(str(path), str(error))
            return None
        self._tails[source.key] = tail
        return tail

    def _beginning(self, path: Path, source: TailSource, *, from_end: bool) -> int:
        """Where to begin: where it was left, behind what was read of it under another name, or at the beginning."""
        known = self._known.pop(source.key, None)
        if known is not None:
            if known.fits(source):
                return known.offset
            self._gone.append(known)
            self._say(f"{path} is another file than the one of which {known.offset:,} bytes were read; it is read anew")
        for position in self._possible_originals(source):
            if is_copy(position, source):
                self._say(f"{path} is a copy of {position.path}, of which {position.offset:,} bytes were read")
                return position.offset
        return (source.size_bytes() or 0) if from_end else 0

    def _possible_originals(self, source: TailSource) -> list[FilePosition]:
        """Files that begin as this one and that it may have been made of: what has no name now, or was packed."""
        head = source.read_at(0, HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            return []
        left = [tail for tail in self._tails.values() if source.is_packed or tail.left_s is not None]
        positions = [tail.position() for tail in (*left, *self._ending) if not tail.source.is_packed]
        return [one for one in (*positions, *self._gone) if one.head_crc32 == crc32(head)]

    def _take_up(self, found: Mapping[FileKey, Path], now_s: float) -> None:
        """The files that are known; those that were renamed while nobody looked are read to their ends."""
        for key, position in list(self._known.items()):
            path = found.get(key) or _with_key(Path(position.path).parent, key)
            if path is None:
                del self._known[key]
                self._gone.append(position)
                self._complain(position.path, f"{position.path} is gone; {position.offset:,} bytes of it were read")
                continue
            tail = self._open(path, from_end=False)
            if tail is not None and key not in found:
                tail.left_s = now_s

    def _complain(self, name: str, words: str) -> None:
        """Say it once for each file."""
        if name not in self._complaints:
            self._complaints.add(name)
            self.unreadable += bool(name)
            self._say(words)


def _with_key(directory: Path, key: FileKey) -> Path | None:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.inode() == key.inode and FileKey.of(entry.stat(follow_symlinks=False)) == key:
                    return Path(entry.path)
    except OSError:
        return None
    return None
