"""Follows one file: reads new bytes, detects truncation, and tracks acknowledged positions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from millstream.ingest.files.lines import (
    DEFAULT_LINE_BYTES,
    Events,
    LineCutter,
    MultilineJoiner,
    MultilineRule,
    TextForm,
)
from millstream.ingest.files.positions import HEAD_BYTES, FilePosition, anchor_of
from millstream.ingest.files.sources import TailSource

__all__ = ["READ_BYTES", "FileTail", "Piece", "TailOptions"]

READ_BYTES: Final = 1024 * 1024
"""Bytes that are read of a file at a time."""

_ANCHOR_BYTES: Final = 64
_FORM_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class TailOptions:
    """How lines are read. An open event is whole when its file has been silent for `hold_s`."""

    encoding: str = "utf-8"
    joining: MultilineRule | None = None
    hold_s: float = 1.0
    max_line_bytes: int = DEFAULT_LINE_BYTES


@dataclass(slots=True)
class Progress:
    """How far a file is acknowledged, until it is emptied: then another one begins, and the old one says nothing."""

    settled: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Events of the file at `path`; once they are acknowledged its position is `end`."""

    path: Path
    events: Events
    end: int
    progress: Progress

    def settle(self) -> None:
        """All events are acknowledged."""
        self.progress.settled = max(self.progress.settled, self.end)


class FileTail:
    """Follows `source` from `offset` on; what is acknowledged lies before `settled`."""

    _offset: int
    """The position up to which it has read."""
    _given: int
    """The position up to which it has given events."""
    _progress: Progress
    _kept: FilePosition | None
    _head: bytes
    _anchor: bytes
    _cutter: LineCutter
    _joiner: MultilineJoiner

    def __init__(self, path: Path, source: TailSource, options: TailOptions, offset: int = 0) -> None:
        self.path = path
        self.source = source
        self._options = options
        self.is_at_end = False
        self._grew_s = 0.0
        self.left_s: float | None = None
        """When its name was seen to be gone or another file's; None while it has its name."""
        self._begin(offset)

    @property
    def settled(self) -> int:
        """The position before which all is acknowledged."""
        return self._progress.settled

    @property
    def is_settled(self) -> bool:
        """Whether all that was read is acknowledged."""
        return self.settled == self._given

    def unread_bytes(self) -> int:
        """Bytes of the file that are not acknowledged."""
        return max(0, (self.source.size_bytes() or 0) - self.settled)

    def read(self, now_s: float) -> Piece | None:
        """What is new; None where there is nothing. Raises BrokenFile, OSError."""
        size = self.source.size_bytes()
        if size is not None and (size < self._offset or (size > self._offset and not self._is_as_left())):
            return self._restart()
        data = self.source.read_at(self._offset, READ_BYTES)
        self.is_at_end = not data
        if not data:
            is_due = self._joiner.open_bytes and now_s - self._grew_s >= self._options.hold_s
            return self._piece(self._joiner.end()) if is_due else None
        self._grew_s = now_s
        self._offset += len(data)
        if len(self._head) < HEAD_BYTES:
            self._head = (self._head + data)[:HEAD_BYTES]
        self._anchor = (self._anchor + data)[-_ANCHOR_BYTES:]
        return self._piece(self._joiner.feed(self._cutter.feed(data)))

    def end(self) -> Piece:
        """What has no end yet: there comes no more."""
        events = self._joiner.feed(self._cutter.end())
        last = self._joiner.end()
        events.whole |= {len(events.bodies) + place: size for place, size in last.whole.items()}
        return self._piece(Events(events.bodies + last.bodies, events.size_bytes + last.size_bytes, events.whole))

    def position(self) -> FilePosition:
        """Where it stands, to be kept. Raises OSError, BrokenFile."""
        kept = self._kept
        if kept is None or kept.offset != self.settled or kept.path != str(self.path):
            settled = self.settled
            key, head = self.source.key, self._head[:settled]
            anchor = None if self.source.is_packed else anchor_of(self.source, settled)
            kept = self._kept = FilePosition(
                str(self.path), key.device, key.inode, settled, len(head), crc32(head), anchor
            )
        return kept

    # inside

    def _begin(self, offset: int) -> None:
        self._offset = self._given = offset
        self._progress = Progress(offset)
        self._kept = None
        self._head = self.source.read_at(0, min(HEAD_BYTES, offset)) if offset else b""
        form = TextForm.of(self._options.encoding, self._form_bytes())
        self._cutter = LineCutter(form, max_bytes=self._options.max_line_bytes, at_start=offset == 0)
        self._joiner = MultilineJoiner(self._options.joining, max_bytes=self._options.max_line_bytes)
        before = max(0, offset - _ANCHOR_BYTES)
        self._anchor = b"" if self.source.is_packed else self.source.read_at(before, offset - before)

    def _form_bytes(self) -> bytes:
        """What says the byte order of the file."""
        return b"" if self._options.encoding in ("utf-8", "ascii") else self.source.read_at(0, _FORM_BYTES)

    def _is_as_left(self) -> bool:
        """Whether the bytes before the position are those that were read: it may be emptied and longer again."""
        return self.source.read_at(self._offset - len(self._anchor), len(self._anchor)) == self._anchor

    def _restart(self) -> Piece:
        """The line without an end, which nobody can read any more; from here on the file is read again."""
        last = self.end()
        self._begin(0)
        self.is_at_end = False
        return last

    def _piece(self, events: Events) -> Piece:
        self._given = self._offset - self._cutter.open_bytes - self._joiner.open_bytes
        return Piece(self.path, events, self._given, self._progress)
