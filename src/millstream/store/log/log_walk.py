"""Walking over a part of the log piece by piece, for who takes whole records out of copies of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from millstream.protocol.record import MIN_RECORD_BYTES
from millstream.store.damage.log_scan import LogScan
from millstream.store.files import FileLayer
from millstream.store.log.mapped_log import LogSegment, MappedLog

__all__ = ["LogFiles", "LogWalk", "walk_files"]

PIECE_BYTES: Final = 64 * 1024
"""Bytes of the log that are copied at a time, or one record if it is longer."""

_SIZE_BYTES: Final = 4


class LogFiles(NamedTuple):
    """A part of the log for another process: from `begin` to before `end`, in files of that path, start and end."""

    begin: int
    end: int
    files: tuple[tuple[str, int, int], ...]


class LogWalk:
    """The log from `begin`, where a record starts, to `end`, in order; over damaged places to the next record.

    `damaged_places` counts these, and `position` is where the walk is.
    """

    def __init__(self, log: MappedLog, begin: int, end: int) -> None:
        self._log = log
        self._end = end
        self.position = begin
        self.damaged_places = 0

    def hand_out(self, take: Callable[[bytes, int], int], max_bytes: int) -> None:
        """Give pieces of the log to `take`, until `max_bytes` or more of it were taken or the walk has ended.

        `take` has the bytes and the log offset where they begin, and says how many it took: whole records, whose
        checksums are its to verify. What it leaves at the start of a piece is passed over as damaged. The walk ends
        before its end only where retention has taken the log away meanwhile.
        """
        stop = min(self._end, self.position + max_bytes)
        while self.position < stop:
            try:
                consumed = self._give(take, stop)
            except FileNotFoundError:
                return
            if not consumed:
                if self._log.segment_at(self.position) is None and self._log.start > self.position:
                    return
                self._pass_over()

    def files(self, max_bytes: int) -> LogFiles:
        """What a walk in another process needs to hand out as much from here on."""
        stop = min(self._end, self.position + max_bytes)
        found = [one for one in self._log.segments if one.end > self.position and one.start < stop]
        # What lies behind these files is for another walk: it would be taken for a gap in the log.
        end = min(self._end, found[-1].end) if found else self.position
        return LogFiles(self.position, end, tuple((str(one.path), one.start, one.end) for one in found))

    def _give(self, take: Callable[[bytes, int], int], stop: int) -> int:
        """How many bytes were taken: none at a segment's end, and at bytes that are no record."""
        segment = self._log.segment_at(self.position)
        if segment is None:
            return 0
        view, position = self._log.view(segment), self.position - segment.start
        last = min(len(view), self._end - segment.start)
        # Taking fields out of a copy costs half of what it costs to take them out of the mapped file.
        data = bytes(view[position : min(last, position + min(PIECE_BYTES, stop - self.position))])
        consumed = take(data, self.position)
        if not consumed and last - position >= MIN_RECORD_BYTES:
            size = int.from_bytes(view[position : position + _SIZE_BYTES], "big")
            if len(data) < size <= last - position:
                consumed = take(bytes(view[position : position + size]), self.position)
        self.position += consumed
        return consumed

    def _pass_over(self) -> None:
        """Go on behind a segment's end or a damaged place."""
        scan = LogScan(self._log, self.position, durable_end=self._end)
        next(iter(scan), None)
        self.damaged_places += scan.damaged
        self.position = min(max(scan.position, self.position + 1), self._end)


def walk_files(given: LogFiles, files: FileLayer | None = None) -> LogWalk:
    """The walk that the files are of. What they have from its begin to its end must not change any more."""
    segments = [LogSegment(Path(path), start, end, allocated_end=end) for path, start, end in given.files]
    return LogWalk(MappedLog(files or FileLayer(), segments), given.begin, given.end)
